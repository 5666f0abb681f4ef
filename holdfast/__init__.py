"""Holdfast: a durable runtime for chat agents."""

__version__ = "0.1.0"
