"""Implementations of the agent protocol."""
