"""Moves between databases, and imports."""
