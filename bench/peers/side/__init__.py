"""Programs that run beside the benchmark: they put to one queue, or work on it.

They run in the environment of that queue, so only the side of Holdfast imports Holdfast."""
