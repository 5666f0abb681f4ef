"""One suite over the Store protocol, run on every engine."""
