"""An agent that is a program speaking ACP: started for each turn, under a supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from holdfast.agents import supervisor
from holdfast.agents.acp.jsonrpc import ProgramEnded, ProgramFlooded, RequestRefused
from holdfast.agents.acp.prompt import Prompt
from holdfast.agents.acp.session import SessionFile
from holdfast.agents.base import Answer
from holdfast.agents.command import (
    HINT,
    NO_SANDBOX,
    NOT_FOUND,
    LifePipe,
    describe_exit,
    message_variables,
    read_tail,
    wait_for_end,
    wait_for_supervisor,
)
from holdfast.agents.sandbox import Bubblewrap, Sandbox
from holdfast.agents.turn import Turn
from holdfast.queue.outcome import Dead, Retry
from holdfast.settings.agents import APPROVAL, COMMAND_POLICY, MAX_OUTPUT
from holdfast.settings.environment import child_environment

LOGIN_REQUIRED = -32000
CANCEL_WITHIN = 2.0
"""Seconds that a program has to end a cancelled prompt by itself."""


class AcpAgent:
    """Works each turn as one prompt of a session. A conversation keeps its session if the program
    can load it."""

    kind = "command"
    default_policy: ClassVar[Mapping[str, Any]] = COMMAND_POLICY

    def __init__(
        self,
        command: Sequence[str],
        workspace: Path,
        sessions: Path,
        *,
        variables: Sequence[str] = (),
        max_output: int = MAX_OUTPUT,
        approval: timedelta = APPROVAL,
        sandbox: Sandbox = NO_SANDBOX,
    ) -> None:
        self.sandbox = sandbox
        self.workspace = workspace
        self._command = list(command)
        self._sessions = sessions
        self._variables = tuple(variables)
        self._max_output = max_output
        self._approval = approval

    async def answer(self, turn: Turn) -> Answer:
        self.workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with self._program(turn) as process:
            assert process.stderr
            errors = asyncio.ensure_future(read_tail(process.stderr, turn.progress))
            try:
                return await self._converse(turn, process)
            except ProgramEnded as error:
                return await self._describe_end(process, errors, error)
            finally:
                errors.cancel()
                await asyncio.wait([errors])

    async def _converse(self, turn: Turn, process: asyncio.subprocess.Process) -> Answer:
        file = SessionFile(self._sessions, turn.conversation)
        prompt = Prompt(turn, process, file, self._max_output, self._approval)
        try:
            return await prompt.answer(self.workspace)
        except RequestRefused as error:
            if error.code == LOGIN_REQUIRED:
                return Dead(f"{error}; log in to {self._command[0]} first", "login")
            return Retry(str(error), error_class="reported")
        except ProgramFlooded as error:
            return Retry(str(error), error_class="flood")
        except asyncio.CancelledError:
            await _cancel(prompt)
            raise

    async def _describe_end(
        self, process: asyncio.subprocess.Process, errors: asyncio.Future[str], why: Exception
    ) -> Answer:
        """Return the outcome of a program that ended too early, with the end of its stderr."""
        reason, code = await _read_end(process, errors)
        name = Path(self._command[0]).name
        if isinstance(self.sandbox, Bubblewrap) and (
            code in NOT_FOUND or reason.startswith("bwrap: ")
        ):
            reason += HINT
        if code == supervisor.CANNOT_START:
            return Dead(reason or f"{name} cannot be started", "no_command")
        what = describe_exit(code) if code else str(why)
        return Retry(f"{name} {what}{': ' if reason else ''}{reason}", error_class="exit")

    @asynccontextmanager
    async def _program(self, turn: Turn) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the program under a supervisor, which ends it with the block."""
        pipe = LifePipe()
        # A start must not be cancelled: asyncio would wait for its pipes for ever.
        start = asyncio.ensure_future(self._start(turn, pipe))
        try:
            yield await asyncio.shield(start)
        finally:
            pipe.close()
            await wait_for_end(asyncio.ensure_future(_end(start)))

    async def _start(self, turn: Turn, pipe: LifePipe) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *supervisor.supervised_command(pipe.child_end, self.sandbox.wrap(self._command)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self.workspace,
                env=child_environment(self._variables) | message_variables(turn),
                pass_fds=(pipe.child_end,),
                start_new_session=True,
                limit=self._max_output,
            )
        finally:
            pipe.close_child_end()


async def _end(start: asyncio.Future[asyncio.subprocess.Process]) -> None:
    await wait_for_supervisor(await start)


async def _read_end(
    process: asyncio.subprocess.Process, errors: asyncio.Future[str]
) -> tuple[str, int | None]:
    """Return the end of stderr and the exit code, as far as they come soon."""
    await asyncio.wait([errors], timeout=CANCEL_WITHIN)
    with suppress(TimeoutError):
        async with asyncio.timeout(CANCEL_WITHIN):
            await process.wait()
    return errors.result() if errors.done() else "", process.returncode


async def _cancel(prompt: Prompt) -> None:
    """Cancel a prompt, and give the program time to save where it stopped."""
    with suppress(TimeoutError, RequestRefused, ProgramEnded, ProgramFlooded):
        async with asyncio.timeout(CANCEL_WITHIN):
            await prompt.cancel()
