"""Leases and timers are under test here, so that the clock is the real one."""

from tests.real_clock import engine, proxy, settings, store

__all__ = ["engine", "proxy", "settings", "store"]
