"""Frames that tell listeners and event streams what happens to messages."""
