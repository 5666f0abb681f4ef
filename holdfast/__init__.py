"""Holdfast: a durable runtime for chat agents."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.agent import Reply
    from holdfast.event import NewEvent, Turn, new_id
    from holdfast.harness import AgentHarness
    from holdfast.outcome import Dead, Done, Retry, Snooze

__version__ = "0.2.0"
__all__ = ["AgentHarness", "Dead", "Done", "NewEvent", "Reply", "Retry", "Snooze", "Turn", "new_id"]

_HOMES = {
    "AgentHarness": "harness",
    "Dead": "outcome",
    "Done": "outcome",
    "NewEvent": "event",
    "Reply": "agent",
    "Retry": "outcome",
    "Snooze": "outcome",
    "Turn": "event",
    "new_id": "event",
}


def __getattr__(name: str) -> Any:
    # Imported when asked for: `holdfast --help` needs none of it.
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
