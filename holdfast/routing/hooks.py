"""Hooks: a user's own code between a message and its agent, and between a reply and the outbox."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from holdfast.agents.base import Answer, Reply
from holdfast.agents.turn import Turn
from holdfast.queue.event import Event
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze

Heard = str | Done | Retry | Snooze | Dead | None
"""None leaves the message as it is, a text takes its place, Done() keeps it from the agent."""
Said = str | Reply | Done | Retry | Snooze | Dead | None
"""None leaves the reply as it is, a text or a reply takes its place, Done() makes it silence."""

IncomingHook = Callable[[Turn], Heard | Awaitable[Heard]]
OutgoingHook = Callable[[Turn, Reply], Said | Awaitable[Said]]

Result = TypeVar("Result")


@dataclass(slots=True)
class Hooks:
    """Called in the order in which they were registered; an error of one is an error of its turn."""

    incoming: list[IncomingHook] = field(default_factory=list)
    outgoing: list[OutgoingHook] = field(default_factory=list)

    async def hear(self, turn: Turn) -> Turn | Outcome:
        """The turn as its agent is to see it, or its end where the agent is not to see it at all."""
        if not self.incoming:
            return turn
        events: list[Event] = []
        for event in turn.events:
            heard = await self._hear_one(turn, event)
            if isinstance(heard, Event):
                events.append(heard)
            elif not isinstance(heard, Done):
                # Of a turn of several, all come back: each is then heard alone, and only this one ends so.
                return heard
        return replace(turn, events=tuple(events)) if events else Done()

    async def _hear_one(self, turn: Turn, event: Event) -> Event | Outcome:
        for hook in self.incoming:
            match await _result(hook(replace(turn, events=(event,)))):
                case None:
                    continue
                case str() as text:
                    event = replace(event, routed_text=text)
                case Done() | Retry() | Snooze() | Dead() as outcome:
                    return _emitting(turn, outcome)
                case other:
                    raise _misuse(hook, other)
        return event

    async def say(self, turn: Turn, answer: Answer) -> Answer:
        """The answer as it is to be stored."""
        if not self.outgoing or not isinstance(answer, str | Reply):
            return answer
        reply = (
            Reply(answer)
            if isinstance(answer, str)
            else replace(answer, metadata=dict(answer.metadata))
        )
        for hook in self.outgoing:
            match await _result(hook(turn, reply)):
                case None:
                    continue
                case str() as text:
                    reply = replace(reply, text=text)
                case Reply() as other_reply:
                    reply = other_reply
                case Done() as done:
                    _emitting(turn, done)
                    return None
                case Retry() | Snooze() | Dead() as outcome:
                    return outcome
                case other:
                    raise _misuse(hook, other)
        return reply


async def _result(result: Result | Awaitable[Result]) -> Result:
    return await result if inspect.isawaitable(result) else result


def _emitting(turn: Turn, outcome: Outcome) -> Outcome:
    if isinstance(outcome, Done):
        turn.emitted.extend(outcome.emits)
    return outcome


def _misuse(hook: Callable[..., object], answer: object) -> TypeError:
    name = getattr(hook, "__name__", type(hook).__name__)
    return TypeError(
        f"the hook {name} answered {type(answer).__name__} instead of a text, an outcome or None"
    )
