"""These tests use the real clock, because leases and timers are under test."""

from tests.real_clock import engine, proxy, settings, store

__all__ = ["engine", "proxy", "settings", "store"]
