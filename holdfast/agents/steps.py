"""Steps: named parts of a turn that run once per message, even over several attempts."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.agents.call import (
    RUNNING,
    Call,
    StepOptions,
    arguments_of,
    check_name,
    check_options,
    key_of,
    name_of,
    options_of,
)
from holdfast.agents.codec import Codec, Unencodable, codec_of
from holdfast.agents.journal import NewFrame, TurnJournal
from holdfast.agents.once import OnceUses
from holdfast.agents.threads import is_async, run_in_thread
from holdfast.errors import EffectUnknown, NotDone, StepError
from holdfast.queue.journal import Step, StepKind, StepState
from holdfast.telemetry import STEP_UNREADABLE, STEPS_IGNORED, STEPS_UNUSED
from holdfast.telemetry.logs import Entry

log = logging.getLogger(__name__)

SHOW_AFTER = timedelta(milliseconds=250)
"""A step that runs longer is shown as started. Others are recorded only once they are done."""


PLAIN = StepOptions()


class Steps:
    """The steps of one attempt of a turn."""

    def __init__(self, journal: TurnJournal) -> None:
        self._journal = journal
        self._uses: Counter[str] = Counter()
        self._batches: dict[tuple[str, ...], dict[str, int]] = {}
        self._once: OnceUses | None = None
        self._keys: set[str] = set()
        self._running = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def key(self, name: str) -> str:
        """Return the key of the next use of a name. Raises StepError for a bad name or use."""
        return key_of(name, self._next_use(name))

    def _next_use(self, name: str) -> int:
        self._check_use(name)
        self._uses[name] += 1
        return self._uses[name]

    def _check_use(self, name: str) -> None:
        running = RUNNING.get()
        if name.__class__ is not str or not self._uses.get(name):
            check_name(name)
        self._journal.check_open(f"step {name!r}")
        if running is not None:
            raise StepError(
                f"step {name!r} was called inside of step {running.key!r}: "
                "call it before or after that step, or make it a plain call"
            )

    def use_in_batch(self, name: str, batch: Sequence[str], member: str) -> int:
        """Return the number of a use of a name by its place in a batch of uses.

        Members of a batch may come in any order: the first one numbers all of them."""
        numbers = self._batches.get((name, *batch), {})
        if member not in numbers:
            self._check_use(name)
            first = self._uses[name] + 1
            self._uses[name] += len(batch)
            numbers = {one: first + offset for offset, one in enumerate(batch)}
            self._batches[(name, *batch)] = numbers
        return numbers.pop(member)

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        options: StepOptions | None = None,
        codec: Codec | None = None,
        number: int | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Return a coroutine that runs a step, or returns the result that an earlier attempt
        recorded.

        The use is numbered now, in the order of calls, unless `number` is given. `codec` replaces
        that of the function's return type."""
        number = number or self._next_use(name)
        key = key_of(name, number)
        if not callable(function):
            raise StepError(f"step {key!r} needs a function, not {type(function).__name__}")
        try:
            codec = codec or codec_of(function)
        except ValueError as error:
            raise StepError(f"step {key!r}: {name_of(function)} {error}") from None
        call = Call(
            name=name,
            number=number,
            key=key,
            function=function,
            args=args,
            kwargs=kwargs or {},
            options=check_options(key, options or options_of(function) or PLAIN),
            codec=codec,
        )
        return self._run_counted(call)

    async def find(self, key: str, *kinds: StepKind) -> Step | None:
        """Return the step of this key that an earlier attempt recorded, if it can be used now."""
        self._keys.add(key)
        journal = await self._journal.earlier()
        step = journal.steps.get(key)
        if step is None or step.kind not in kinds:
            return None
        events = len(self._journal.leased.events)
        if step.kind != "once" and step.events != events:
            self._log_once(STEPS_IGNORED, of=step.events, now=events)
            return None
        return step

    def step(self, key: str, kind: StepKind, state: StepState, **fields: Any) -> Step:
        """Build a row of the journal for this attempt."""
        leased = self._journal.leased
        return Step(
            key=key,
            kind=kind,
            state=state,
            attempt=leased.attempt,
            events=len(leased.events),
            **fields,
        )

    async def wait_idle(self) -> None:
        """Wait until no step of the turn runs or is being recorded."""
        await self._is_idle.wait()

    async def log_unused(self) -> None:
        """Log steps of earlier attempts that this one, which has ended well, did not ask for."""
        journal = await self._journal.earlier()
        if unused := [key for key in journal.steps if key not in self._keys]:
            log.warning(Entry(STEPS_UNUSED, **self._log_fields(), steps=unused[:10]))

    async def _run_counted(self, call: Call) -> Any:
        self._running += 1
        self._is_idle.clear()
        try:
            return await self._result(call)
        finally:
            self._running -= 1
            if not self._running:
                self._is_idle.set()

    async def _result(self, call: Call) -> Any:
        is_once = call.kind == "once"
        found = await (self._match(call) if is_once else self.find(call.key, "step", "once"))
        if found is not None and found.state == "done":
            try:
                return call.codec.decode(found.result)
            except ValueError as error:
                self._unreadable(call, found, error)
        self._journal.leased.check_lease()
        return await (self._run_once(call, found) if is_once else self._run(call))

    async def _match(self, call: Call) -> Step | None:
        """Return the recorded use that a once-step repeats, None if it may run.

        Raises EffectUnknown if a use with other arguments is recorded in its place: that effect
        could be repeated, and its result is not the result of this call."""
        call.arguments, call.digest = arguments_of(call)
        recorded = (await self._journal.earlier()).steps.values()
        self._once = self._once or OnceUses(recorded)
        found = self._once.take(call)
        if found is None and (rival := self._once.rival(call)):
            if rival.state == "done":
                await self._journal.record_steps(self._once_step(call, "unknown"))
            raise self._effect_unknown(call, rival, other=call.arguments)
        self._keys.add(call.key)
        return await self.find(call.key, "step") if found is None else found

    async def _run_once(self, call: Call, found: Step | None) -> Any:
        """Commit the start of a once-step and run it; if it may have happened, probe it first."""
        if found is not None and found.kind == "once" and found.state in ("started", "unknown"):
            try:
                return await self._probe(call, found)
            except NotDone:
                self._journal.leased.check_lease()
        started = self._once_step(call, "started")
        await self._journal.record_steps(started, frames=[_frame("step_start", call)])
        return await self._run(call)

    def _once_step(self, call: Call, state: StepState) -> Step:
        return self.step(call.key, "once", state, arguments=call.arguments, digest=call.digest)

    async def _run(self, call: Call) -> Any:
        """Run the function and record its result, or that it failed."""
        shown = _Start(self, call) if call.kind == "step" else None
        began_at, task = self._journal.now(), asyncio.current_task()
        cancelling = 0 if task is None else task.cancelling()
        try:
            result = await self._invoke(call, call.function)
            value, text = self._encode(call, result)
        except Exception as error:
            self._journal.in_background(self._record_failure(call, shown, began_at, error))
            raise
        finally:
            if shown is not None:
                shown.stop()
        await self._record_done(call, shown, began_at, text)
        if task is not None and task.cancelling() > cancelling:
            # A cancellation came while a thread ran, whose end had to be awaited.
            raise asyncio.CancelledError
        return value

    def _encode(self, call: Call, result: Any) -> tuple[Any, str]:
        """Return the result as a later attempt would get it, and its text.

        Both attempts get the same value, so that a type that is not restored is noticed at once."""
        try:
            text = call.codec.encode(result)
            return call.codec.decode(text), text
        except ValueError as error:
            raise StepError(f"the result of step {call.key!r} {_of_decoding(error)}") from error

    async def _invoke(self, call: Call, function: Callable[..., Any]) -> Any:
        token = RUNNING.set(call)
        try:
            return await self._call(call, function)
        except (SystemExit, KeyboardInterrupt) as error:
            # From a task of the agent, such as that of a gather, it would end the event loop.
            raise StepError(f"step {call.key!r} raised {type(error).__name__}: {error}") from error
        finally:
            RUNNING.reset(token)

    async def _call(self, call: Call, function: Callable[..., Any]) -> Any:
        if is_async(function):
            return await function(*call.args, **call.kwargs)
        journal = self._journal
        result = await run_in_thread(
            functools.partial(function, *call.args, **call.kwargs),
            agent=journal.agent,
            event_id=journal.leased.primary.id,
        )
        return await result if inspect.isawaitable(result) else result

    async def _record_done(
        self, call: Call, shown: _Start | None, began_at: datetime, text: str
    ) -> None:
        self._journal.check_open(f"the end of step {call.key!r}")
        is_shown = shown is None or await shown.is_shown()
        start = () if is_shown else (_frame("step_start", call),)
        done = self.step(
            call.key,
            call.kind,
            "done",
            result=text,
            started_at=began_at,
            ended_at=self._journal.now(),
            tokens=call.tokens,
            cost=call.cost,
        )
        await self._journal.record_steps(done, frames=[*start, _frame("step_done", call)])

    async def _record_failure(
        self, call: Call, shown: _Start | None, began_at: datetime, error: Exception
    ) -> None:
        """Record why a step failed, for people. A once-step may have happened all the same."""
        failed = self.step(
            call.key,
            call.kind,
            "unknown" if call.kind == "once" else "failed",
            error=f"{type(error).__name__}: {error}",
            started_at=began_at,
            ended_at=self._journal.now(),
        )
        if shown is not None:
            await shown.is_shown()
        await self._journal.record_steps(failed)

    async def _probe(self, call: Call, found: Step) -> Any:
        """Find out whether a once-step happened. Returns its value; raises NotDone if it did not.

        Without a probe only a person can tell."""
        if call.options.probe is None:
            raise self._effect_unknown(call, found)
        began_at = found.started_at or self._journal.now()
        value, text = self._encode(call, await self._invoke(call, call.options.probe))
        await self._record_done(call, None, began_at, text)
        return value

    def _effect_unknown(self, call: Call, found: Step, *, other: str = "") -> EffectUnknown:
        """Return the error that asks a person about a recorded call, and about the `other`
        arguments of this one."""
        id_, name = self._journal.leased.primary.id, name_of(call.function)
        happened = "has happened" if found.state == "done" else "may have happened"
        now = f" This attempt would call it with other arguments: {other}." if other else ""
        error = EffectUnknown(
            f"step {found.key!r}: the call {name} with arguments {found.arguments or '[]'}"
            f" of attempt {found.attempt} {happened}.{now} Find out, then run"
            f" `holdfast dead retry {id_} --assume done` or `--assume not-done`"
        )
        self._journal.unknown = error
        return error

    def _unreadable(self, call: Call, found: Step, error: ValueError) -> None:
        """Handle a recorded result that does not fit the type any more.

        Raises StepError for a once-step. Other steps can run again, so it is only logged."""
        why = _of_decoding(error)
        if found.kind == "once":
            raise StepError(
                f"the recorded result of once-step {call.key!r} {why};"
                " let the function return a type that fits it"
            ) from error
        log.warning(Entry(STEP_UNREADABLE, **self._log_fields(), step=call.key, error=why))

    def _log_once(self, message: str, **fields: Any) -> None:
        if message not in self._uses:
            self._uses[message] = 0
            log.warning(Entry(message, **self._log_fields(), **fields))

    def _log_fields(self) -> dict[str, Any]:
        primary = self._journal.leased.primary
        return {"agent": self._journal.agent, "event_id": primary.id}


class _Start:
    """Shows a step as started if it runs for long."""

    def __init__(self, steps: Steps, call: Call) -> None:
        self._steps = steps
        self._call = call
        self._task: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SHOW_AFTER.total_seconds(), self._show)

    def _show(self) -> None:
        journal, call = self._steps._journal, self._call
        began_at = journal.now() - SHOW_AFTER
        started = self._steps.step(call.key, call.kind, "started", started_at=began_at)
        self._task = journal.in_background(
            journal.record_steps(started, frames=[_frame("step_start", call)])
        )

    def stop(self) -> None:
        self._timer.cancel()

    async def is_shown(self) -> bool:
        """Return whether it was shown; wait until that is stored, so that the end comes after."""
        self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
        return self._task is not None


def note_usage(tokens: int | None = None, cost: float | None = None) -> None:
    """Record tokens and cost with the step whose function runs here; ignored outside of steps."""
    if call := RUNNING.get():
        call.tokens, call.cost = tokens, cost


def _frame(kind: str, call: Call) -> NewFrame:
    return kind, {"key": call.key}


def _of_decoding(error: ValueError) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, Unencodable) else f"cannot be read back: {text}"
