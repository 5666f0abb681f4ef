"""Programs that run beside the benchmark: they put to one queue, or work on it.

They run in the environment of that queue, so they import nothing of Holdfast but its own side."""
