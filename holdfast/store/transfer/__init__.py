"""Carrying rows between databases: moves to another engine or server, and imports."""
