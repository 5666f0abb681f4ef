"""Agents of every kind."""
