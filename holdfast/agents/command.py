"""Agents that are command-line programs: message on standard input, answer on standard output."""

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

END_WITHIN = supervisor.KILL_AFTER + supervisor.KILL_FOR + 1
"""Seconds in which a supervisor ends its command, or is killed itself."""
ERROR_TAIL = 4096
"""Bytes of standard error that go into an error."""
CHUNK = 65_536
NO_SANDBOX = NoSandbox()
NOT_FOUND = (126, 127)
"""Exit codes of a shell that cannot run a program or find its interpreter."""
HINT = " (in the sandbox, `readable` and `writable` of the agent name further paths)"


class CommandAgent:
    """Works each turn with one run of a command, in its own folder and with its own environment."""

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
        """The folder in which the command runs. Replies may send its files."""
        return self._workspace

    async def answer(self, turn: Turn) -> Answer:
        self._workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        pipe = LifePipe()
        run = asyncio.ensure_future(self._run(turn, pipe))
        try:
            # If the start of a process is cancelled, asyncio kills it and waits for its pipes for
            # ever. So a cancellation does not reach the run: it closes the pipe, which ends the
            # run.
            return self._answer(turn, await asyncio.shield(run))
        finally:
            pipe.close()
            await wait_for_end(run)

    def _answer(self, turn: Turn, result: RunResult) -> Answer:
        name, stderr = Path(self._command[0]).name, result.stderr
        if result.code is None:
            return Retry(
                f"{name} wrote more than {self._max_output} bytes and was stopped",
                error_class="flood",
            )
        if isinstance(self.sandbox, Bubblewrap) and (
            result.code in NOT_FOUND or stderr.startswith("bwrap: ")
        ):
            stderr += HINT
        if result.code == supervisor.CANNOT_START:
            return Dead(stderr or f"{name} cannot be started", "no_command")
        transcript = transcript_of(result.output)
        if result.code != 0:
            reason = stderr or transcript.error or transcript.text[-ERROR_TAIL:]
            return Retry(
                f"{name} {describe_exit(result.code)}{': ' if reason else ''}{reason}",
                error_class="exit",
            )
        if transcript.error is not None and not transcript.is_final:
            return Retry(f"{name} reports: {transcript.error}", error_class="reported")
        if transcript.usage:
            turn.metadata["usage"] = transcript.usage
            count_tokens(turn.agent, name, transcript.usage)
        return Reply(transcript.text or NO_ANSWER)

    async def _run(self, turn: Turn, pipe: LifePipe) -> RunResult:
        """Run the command until it ends, writes too much, or the pipe is closed."""
        try:
            process = await asyncio.create_subprocess_exec(
                *supervisor.supervised_command(pipe.child_end, self.sandbox.wrap(self._command)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._workspace,
                env=child_environment(self._variables) | message_variables(turn),
                pass_fds=(pipe.child_end,),
                start_new_session=True,
            )
        finally:
            pipe.close_child_end()
        try:
            return await _communicate(
                process, prompt_of(turn).encode(), self._max_output, turn.progress
            )
        finally:
            pipe.close()
            await wait_for_supervisor(process)


class LifePipe:
    """A pipe to a supervisor, which ends its command when our end closes, even if we are killed."""

    def __init__(self) -> None:
        self.child_end, self._own_end = os.pipe()
        self._is_open = True

    def close_child_end(self) -> None:
        """Close this process's copy of the supervisor's end."""
        os.close(self.child_end)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self._own_end)


async def wait_for_end(run: asyncio.Future[Any]) -> None:
    """Wait for a run whose pipe is closed, ignoring further cancellations."""
    give_up_at = time.monotonic() + END_WITHIN
    while not run.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([run], timeout=max(0.1, give_up_at - time.monotonic()))
        if time.monotonic() > give_up_at:
            run.cancel()
    if not run.cancelled():
        run.exception()


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run: its exit code (None if it wrote too much) and what it wrote."""

    code: int | None
    output: str
    stderr: str


async def _communicate(
    process: asyncio.subprocess.Process,
    message: bytes,
    max_output: int,
    progress: Callable[[], None],
) -> RunResult:
    assert process.stdin and process.stdout and process.stderr  # noqa: PT018 - they are pipes
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(_write(process.stdin, message))
        reading_errors = group.create_task(read_tail(process.stderr, progress))
        output = await _read(process.stdout, max_output, progress)
        if output is None:
            writing.cancel()
            reading_errors.cancel()
            return RunResult(None, "", "")
    return RunResult(await process.wait(), output.decode(errors="replace"), reading_errors.result())


async def _write(stdin: asyncio.StreamWriter, message: bytes) -> None:
    # A command need not read its input.
    with suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(message)
        await stdin.drain()
    stdin.close()


async def _read(
    stdout: asyncio.StreamReader, most: int, progress: Callable[[], None]
) -> bytes | None:
    """Read the whole output. Returns None if it is longer than `most` bytes."""
    output = bytearray()
    while chunk := await stdout.read(CHUNK):
        progress()
        output += chunk
        if len(output) > most:
            return None
    return bytes(output)


async def read_tail(stderr: asyncio.StreamReader, progress: Callable[[], None]) -> str:
    tail = b""
    while chunk := await stderr.read(CHUNK):
        progress()
        tail = (tail + chunk)[-ERROR_TAIL:]
    return tail.decode(errors="replace").strip()


async def wait_for_supervisor(process: asyncio.subprocess.Process) -> None:
    """Wait for the supervisor, which waits for all it started. Discards further output."""
    assert process.stdout and process.stderr  # noqa: PT018 - they are pipes
    try:
        async with asyncio.timeout(END_WITHIN):
            # asyncio reports the end of a process only after that of its pipes, and it does not
            # drain a full pipe by itself.
            for stream in (process.stdout, process.stderr):
                while await stream.read(CHUNK):
                    pass
            await process.wait()
    except TimeoutError:
        process.kill()
    finally:
        # asyncio keeps a pipe open until all of it is read.
        process._transport.close()  # type: ignore[attr-defined]


def message_variables(turn: Turn) -> dict[str, str]:
    """Return environment variables that describe the message."""
    known = {
        "AGENT": turn.agent,
        "ATTEMPT": str(turn.attempt),
        "CHANNEL": turn.channel,
        "CONVERSATION": turn.conversation,
        "MESSAGE_ID": turn.message_id or "",
        "SENDER": turn.sender,
    }
    return {f"HOLDFAST_{name}": value.replace("\0", "") for name, value in known.items()}


def describe_exit(code: int) -> str:
    if code > 128:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"
