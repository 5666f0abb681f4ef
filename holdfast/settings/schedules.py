"""[[schedules]]: messages that an agent gets at certain times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from holdfast.settings.agents import Id
from holdfast.settings.table import Table
from holdfast.settings.timing import parse_timing


def _conversation(text: str) -> str:
    channel, _, name = text.partition(":")
    if not (channel and name):
        raise ValueError("a conversation is CHANNEL:CONVERSATION, such as slack:C123")
    return text


class ScheduleTable(Table):
    """A message that an agent gets at certain times."""

    id: Id = Field(examples=["standup"])
    """Name of the schedule in `holdfast schedule list`."""
    timing: str = Field(examples=["0 9 * * mon-fri"])
    """Times at which it runs: cron, an interval like "every 10 min", or a time like
    "2027-01-31T09:00"."""
    zone: str = "UTC"
    """Time zone of a cron expression, and of a time that names none, such as Europe/Berlin."""
    message: str = Field(min_length=1, examples=["prepare the stand-up"])
    """Text for the agent."""
    agent: Id | None = Field(default=None, examples=["coder"])
    """Agent that gets it; by default the default agent."""
    to: Annotated[str, AfterValidator(_conversation)] | None = Field(
        default=None, examples=["slack:C123"]
    )
    """Conversation that gets the answers. Without it, they are in the agent's history alone."""
    missed: Literal["skip", "once", "all"] = "once"
    """Runs to make up for after a time without a running process: none ("skip"), the latest one
    ("once"), or up to 100 ("all")."""

    @model_validator(mode="after")
    def _has_times(self) -> ScheduleTable:
        parse_timing(self.timing, self.zone, datetime(2026, 1, 1, tzinfo=UTC))
        return self
