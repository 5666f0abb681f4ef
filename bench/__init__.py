"""The benchmark: our stores beside the raw rates of their engines, measured in one run."""
