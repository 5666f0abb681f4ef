"""`holdfast chat`: a conversation at the terminal with the agents of a running server."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Config, Database, Home, load_settings, login_name, open_existing
from holdfast.cli.printing import GrowingText, ago, echo, leave_prompt, show_prompt
from holdfast.cli.send import put_with_warning
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.chat import AgentMessage, ChatStore
    from holdfast.cli.answers import AnswerReader
    from holdfast.message import Payload
    from holdfast.queue.event import Event
    from holdfast.routing.router import Address
    from holdfast.settings import Settings

HISTORY_LINES = 20
HISTORY_TEXT = 4000
"""Characters shown of an earlier text."""
BETWEEN_AGENTS = ("internal_", "chat_", "chatroom_")
"""Prefixes of the ids of messages that agents sent to each other."""
HELP = "/new starts a new conversation, /quit ends"


def chat(
    agent: Annotated[
        str | None, typer.Option(help="Agent or team to ask (default: the default agent)")
    ] = None,
    sender: Annotated[
        str | None, typer.Option(help="Name of the sender (default: your login name)")
    ] = None,
    conversation: Annotated[
        str | None, typer.Option(help="Conversation to continue (default: the sender's own)")
    ] = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
) -> None:
    """Talk to agents: type a message, see the answers as they come; /new, /quit."""
    settings = load_settings(config, database=database, home=home)
    # Ctrl-C ends the chat like /quit.
    with suppress(KeyboardInterrupt):
        asyncio.run(_chat(settings, agent, sender or login_name(), conversation))


async def _chat(
    settings: Settings, agent: str | None, sender: str, conversation: str | None
) -> None:
    from holdfast.cli.answers import answer_reader

    async with open_existing(settings) as store, answer_reader(store) as reader:
        await _Chat(store, settings, reader, agent, sender, conversation).run()


class _Chat:
    """A person at the terminal, and the conversation that is open."""

    def __init__(
        self,
        store: ChatStore,
        settings: Settings,
        reader: AnswerReader,
        agent: str | None,
        sender: str,
        conversation: str | None,
    ) -> None:
        self._store, self._settings, self._reader = store, settings, reader
        self._agent, self._sender, self._conversation = agent, sender, conversation
        self._output = asyncio.Lock()

    async def run(self) -> None:
        """Read lines until /quit or the end of input.

        At a terminal, answers come while the person types. In a pipe, each line is answered before
        the next one is read."""
        await self._refuse_unknown_agent()
        await self._print_history()
        lines = _read_lines()
        async with asyncio.TaskGroup() as group:
            answering: list[asyncio.Task[None]] = []
            show_prompt()
            while (line := await lines.get()) not in (None, "/quit"):
                if line == "/new":
                    self._start_conversation()
                elif line and (message_id := await self._send(line)):
                    answering.append(group.create_task(self._print_answers(message_id)))
                    if not sys.stdin.isatty():
                        await answering[-1]
                show_prompt()
            if line == "/quit":
                for task in answering:
                    task.cancel()

    async def _refuse_unknown_agent(self) -> None:
        """Refuse a mistyped agent; while no process works, one may still bring it."""
        from holdfast.routing.directory import configured_routing, read

        if self._agent and await self._store.processes():
            directory = await read(self._store, configured_routing(self._settings))
            directory.routing.route_to(self._agent)

    @property
    def _address(self) -> Address:
        from holdfast.routing.router import Address

        return Address(sender=self._sender, topic=self._conversation)

    def _start_conversation(self) -> None:
        from holdfast.queue.event import new_id

        self._conversation = new_id("chat")
        echo(f"new conversation {self._conversation}")

    async def _send(self, text: str) -> str | None:
        """Store a message. Returns its id; None if it was refused, which is a line on stderr."""
        try:
            sent = await put_with_warning(
                self._store, self._settings, text, self._address, self._agent
            )
        except HoldfastError as error:
            echo(f"holdfast: {error}", err=True)
            return None
        return str(sent["messageId"])

    async def _print_answers(self, message_id: str) -> None:
        """Print the answers to a message; a failure is a line, and the chat goes on."""
        growing = _GrowingAnswer(self._output)
        # Without a terminal an answer that starts over cannot be taken back.
        show = growing.show if sys.stdin.isatty() and sys.stdout.isatty() else None
        try:
            async for response in self._reader.answers(message_id, show):
                await growing.print(response)
            for failure in await self._reader.failures(message_id):
                echo(f"holdfast: {failure}", err=True)
        except HoldfastError as error:
            echo(f"holdfast: {error}", err=True)
        finally:
            growing.end()

    async def _print_history(self) -> None:
        lines = await self._history()
        if lines and (last_at := lines[-1].created_at):
            echo(f"earlier in this conversation, last {ago(last_at)}:")
        for line in lines:
            text = line.content
            if len(text) > HISTORY_TEXT:
                text = f"{text[:HISTORY_TEXT]}… ({len(text)} characters)"
            echo(f"{'you' if line.role == 'user' else line.agent_id}: {text}")
        if not await self._store.processes():
            echo("holdfast: no process works on this database; start `holdfast up`", err=True)
        if sys.stdin.isatty():
            echo(HELP)

    async def _history(self) -> list[AgentMessage]:
        """Read the newest lines of the conversation over all agents, oldest first."""
        from holdfast.routing.directory import configured_routing, read

        directory = await read(self._store, configured_routing(self._settings))
        where = self._address.conversation
        pages = [
            await self._store.agent_messages(id_, conversation=where, limit=HISTORY_LINES)
            for id_ in directory.routing.lanes
        ]
        lines = [line for page in pages for line in page if not _is_between_agents(line)]
        return sorted(lines, key=lambda line: line.id or 0)[-HISTORY_LINES:]


def _is_between_agents(line: AgentMessage) -> bool:
    return line.role == "user" and line.message_id.startswith(BETWEEN_AGENTS)


class _GrowingAnswer:
    """Prints the answers to a message in place of the prompt, and the prompt again below them.

    While one grows, the answers to other messages wait: they would come in the middle of it."""

    def __init__(self, output: asyncio.Lock) -> None:
        self._output = output
        self._text = GrowingText()
        self._has_output = False

    async def show(self, frame: Payload) -> None:
        if frame["type"] in ("response_delta", "response_reset"):
            await self._begin()
            self._text.apply(frame, f"{frame['agent']}: ")

    async def print(self, response: Event) -> None:
        await self._begin()
        agent, text = response.event.get("agent"), response.event.get("message")
        self._text.finish(str(text), f"{agent}: ")
        self.end()

    def end(self) -> None:
        """End the line of an answer and let others print."""
        if self._has_output:
            self._text.end()
            sys.stdout.flush()
            show_prompt()
            self._output.release()
            self._has_output = False

    async def _begin(self) -> None:
        if not self._has_output:
            await self._output.acquire()
            self._has_output = True
            leave_prompt()


def _read_lines() -> asyncio.Queue[str | None]:
    """Read stdin line by line into a queue; None is its end.

    In a daemon thread: nothing can interrupt a read, and the process must not wait for it."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        # Not sys.stdin: the interpreter aborts at exit if this thread holds its lock.
        with open(sys.stdin.fileno(), encoding="utf-8", errors="replace", closefd=False) as stdin:
            for line in stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line.strip())
        loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True, name="stdin").start()
    return lines
