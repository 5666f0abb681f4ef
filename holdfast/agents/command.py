"""An agent that is a command-line program: the message on its standard input, the answer on its standard output."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from holdfast.agents import supervisor
from holdfast.agents.base import NO_ANSWER, Answer, Reply, prompt_of
from holdfast.agents.sandbox import Bubblewrap, NoSandbox, Sandbox
from holdfast.agents.transcript import transcript_of
from holdfast.agents.turn import Turn
from holdfast.queue.outcome import Dead, Retry
from holdfast.settings.agents import COMMAND_POLICY, MAX_OUTPUT
from holdfast.settings.environment import child_environment
from holdfast.telemetry import count_tokens

GIVE_UP_AFTER = supervisor.KILL_AFTER + supervisor.KILL_FOR + 1
ERROR_TAIL = 4096
CHUNK = 65_536
NO_SANDBOX = NoSandbox()
NOT_FOUND = (126, 127)
"""Exit codes of a shell that cannot run a program or find its interpreter."""
HINT = " (in the sandbox, `readable` and `writable` of the agent name further paths)"


class CommandAgent:
    """Works each turn with one run of a command, in a folder of its own and with an environment of its own."""

    kind = "command"
    default_policy: ClassVar[Mapping[str, Any]] = COMMAND_POLICY

    def __init__(
        self,
        command: Sequence[str],
        workspace: Path,
        *,
        variables: Sequence[str] = (),
        max_output: int = MAX_OUTPUT,
        sandbox: Sandbox = NO_SANDBOX,
    ) -> None:
        self.sandbox = sandbox
        self._command = list(command)
        self._workspace = workspace
        self._variables = tuple(variables)
        self._max_output = max_output

    @property
    def workspace(self) -> Path:
        """The folder in which the command runs, and whose files its replies may send."""
        return self._workspace

    async def answer(self, turn: Turn) -> Answer:
        self._workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        leash = Leash()
        run = asyncio.ensure_future(self._run(turn, leash))
        try:
            # asyncio kills -9 a process whose start is cancelled, and then waits for its pipes for ever.
            # So a cancellation never reaches the run itself: it lets go of the leash, which ends it.
            return self._judged(turn, await asyncio.shield(run))
        finally:
            leash.let_go()
            await _over(run)

    def _judged(self, turn: Turn, ended: Ended) -> Answer:
        name, complaint = Path(self._command[0]).name, ended.complaint
        if ended.code is None:
            return Retry(
                f"{name} wrote more than {self._max_output} bytes and was stopped",
                error_class="flood",
            )
        if isinstance(self.sandbox, Bubblewrap) and (
            ended.code in NOT_FOUND or complaint.startswith("bwrap: ")
        ):
            complaint += HINT
        if ended.code == supervisor.CANNOT_START:
            return Dead(complaint or f"{name} cannot be started", "no_command")
        said = transcript_of(ended.output)
        if ended.code != 0:
            reason = complaint or said.error or said.text[-ERROR_TAIL:]
            return Retry(
                f"{name} {_how(ended.code)}{': ' if reason else ''}{reason}", error_class="exit"
            )
        if said.error is not None and not said.is_final:
            return Retry(f"{name} reports: {said.error}", error_class="reported")
        if said.usage:
            turn.metadata["usage"] = said.usage
            count_tokens(turn.agent, name, said.usage)
        return Reply(said.text or NO_ANSWER)

    async def _run(self, turn: Turn, leash: Leash) -> Ended:
        """Run the command under its supervisor until it ends, floods us or the leash is let go."""
        try:
            process = await asyncio.create_subprocess_exec(
                *supervisor.supervised(leash.heard, self.sandbox.wrap(self._command)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._workspace,
                env=child_environment(self._variables) | _told(turn),
                pass_fds=(leash.heard,),
                start_new_session=True,
            )
        finally:
            leash.hand_over()
        try:
            return await _converse(
                process, prompt_of(turn).encode(), self._max_output, turn.progress
            )
        finally:
            leash.let_go()
            await _gone(process)


class Leash:
    """A pipe to a supervisor, which ends its command once our end is closed, be it by our death."""

    def __init__(self) -> None:
        self.heard, self._held = os.pipe()
        self._is_held = True

    def hand_over(self) -> None:
        """Close the supervisor's end in this process."""
        os.close(self.heard)

    def let_go(self) -> None:
        if self._is_held:
            self._is_held = False
            os.close(self._held)


async def _over(run: asyncio.Future[Ended]) -> None:
    """Wait for a run whose leash was let go, whatever cancellations arrive; the first one goes on afterwards."""
    give_up_at = time.monotonic() + GIVE_UP_AFTER
    while not run.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([run], timeout=max(0.1, give_up_at - time.monotonic()))
        if time.monotonic() > give_up_at:
            run.cancel()
    if not run.cancelled():
        run.exception()


@dataclass(frozen=True, slots=True)
class Ended:
    """Result of a run: its exit code (None if it wrote too much) and what it wrote."""

    code: int | None
    output: str
    complaint: str


async def _converse(
    process: asyncio.subprocess.Process,
    message: bytes,
    max_output: int,
    progress: Callable[[], None],
) -> Ended:
    assert process.stdin and process.stdout and process.stderr  # noqa: PT018 - they are pipes
    async with asyncio.TaskGroup() as group:
        saying = group.create_task(_say(process.stdin, message))
        complaining = group.create_task(_tail(process.stderr, progress))
        output = await _read(process.stdout, max_output, progress)
        if output is None:
            saying.cancel()
            complaining.cancel()
            return Ended(None, "", "")
    return Ended(await process.wait(), output.decode(errors="replace"), complaining.result())


async def _say(stdin: asyncio.StreamWriter, message: bytes) -> None:
    # A command need not read what it is told.
    with suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(message)
        await stdin.drain()
    stdin.close()


async def _read(
    stdout: asyncio.StreamReader, most: int, progress: Callable[[], None]
) -> bytes | None:
    """All of the output, None where it is more than is good."""
    output = bytearray()
    while chunk := await stdout.read(CHUNK):
        progress()
        output += chunk
        if len(output) > most:
            return None
    return bytes(output)


async def _tail(stderr: asyncio.StreamReader, progress: Callable[[], None]) -> str:
    tail = b""
    while chunk := await stderr.read(CHUNK):
        progress()
        tail = (tail + chunk)[-ERROR_TAIL:]
    return tail.decode(errors="replace").strip()


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Wait for the supervisor, which waits for all that it ran; drop what they still write."""
    assert process.stdout and process.stderr  # noqa: PT018 - they are pipes
    try:
        async with asyncio.timeout(GIVE_UP_AFTER):
            # asyncio tells of an end after that of the pipes, and never reads one that is too full by itself.
            for stream in (process.stdout, process.stderr):
                while await stream.read(CHUNK):
                    pass
            await process.wait()
    except TimeoutError:
        process.kill()
    finally:
        # asyncio keeps a pipe open of which not all was read.
        process._transport.close()  # type: ignore[attr-defined]


def _told(turn: Turn) -> dict[str, str]:
    """What a command may want to know of its message."""
    known = {
        "AGENT": turn.agent,
        "ATTEMPT": str(turn.attempt),
        "CHANNEL": turn.channel,
        "CONVERSATION": turn.conversation,
        "MESSAGE_ID": turn.message_id or "",
        "SENDER": turn.sender,
    }
    return {f"HOLDFAST_{name}": value.replace("\0", "") for name, value in known.items()}


def _how(code: int) -> str:
    if code > 128:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"
