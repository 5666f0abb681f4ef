"""The pages, in a real browser against real processes."""
