"""Holdfast beside other queues, on the same server in the same run (`make bench-peers`)."""
