"""Hooks: a user's own code between a message and its agent, and between a reply and the outbox."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

from holdfast.agents.base import Answer, Reply
from holdfast.agents.turn import Turn
from holdfast.queue.event import Event
from holdfast.queue.outcome import Dead, Done, Outcome, Retry, Snooze

IncomingResult = str | Done | Retry | Snooze | Dead | None
"""None keeps the message, a text replaces it, Done() ends the turn without its agent."""
OutgoingResult = str | Reply | Done | Retry | Snooze | Dead | None
"""None keeps the reply, a text or a Reply replaces it, Done() drops it."""

IncomingHook = Callable[[Turn], IncomingResult | Awaitable[IncomingResult]]
OutgoingHook = Callable[[Turn, Reply], OutgoingResult | Awaitable[OutgoingResult]]

ONE_BY_ONE = Retry(
    "a hook snoozed one of these: they are worked one by one", timedelta(0), "one_by_one"
)

Result = TypeVar("Result")


@dataclass(slots=True)
class Hooks:
    """The hooks of an app, in order of registration; an error in one fails its turn."""

    incoming: list[IncomingHook] = field(default_factory=list)
    outgoing: list[OutgoingHook] = field(default_factory=list)

    async def apply_incoming(self, turn: Turn) -> Turn | Outcome:
        """Return the turn as its agent gets it, or the outcome that a hook chose instead."""
        events: list[Event] = []
        for event in turn.events:
            result = await self._apply_to_event(turn, event)
            if isinstance(result, Event):
                events.append(result)
            elif not isinstance(result, Done):
                # After a Retry or Dead, several messages come back one by one, each for itself.
                # After a Snooze they would come back together, and the others wait for this one.
                is_one_of_several = isinstance(result, Snooze) and len(turn.events) > 1
                return ONE_BY_ONE if is_one_of_several else result
        return replace(turn, events=tuple(events)) if events else Done()

    async def _apply_to_event(self, turn: Turn, event: Event) -> Event | Outcome:
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

    async def apply_outgoing(self, turn: Turn, answer: Answer) -> Answer:
        """Return the answer to store."""
        if not isinstance(answer, str | Reply):
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
