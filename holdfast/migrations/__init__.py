"""Bringing a database to this version of Holdfast."""
