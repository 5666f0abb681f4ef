"""`holdfast send`: store a message, and wait for the answers if asked to."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import (
    AsJson,
    Config,
    Database,
    Home,
    load_settings,
    login_name,
    open_existing,
    parse_duration,
)
from holdfast.cli.printing import GrowingText, echo, print_json
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.answers import AnswerReader
    from holdfast.message import Payload
    from holdfast.queue.event import Event
    from holdfast.routing.router import Address
    from holdfast.settings import Settings
    from holdfast.store import Store


def send(
    text: Annotated[str, typer.Argument(help="The message; - reads it from stdin.")],
    agent: Annotated[
        str | None, typer.Option(help="Agent or team to ask (default: the default agent)")
    ] = None,
    sender: Annotated[
        str | None, typer.Option(help="Name of the sender (default: your login name)")
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Print the answers of all agents until the last has ended."),
    ] = False,
    first: Annotated[
        bool, typer.Option("--first", help="Wait for the first answer only, and print it.")
    ] = False,
    timeout: Annotated[
        timedelta,
        typer.Option(parser=parse_duration, metavar="DURATION", help="Longest time to wait"),
    ] = "5min",  # type: ignore[assignment]
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Store a message for an agent."""
    message = _check_text(sys.stdin.read() if text == "-" else text)
    settings = load_settings(config, database=database, home=home)
    sending = _Sending(settings, message, agent, sender or login_name(), first, as_json)
    sent = asyncio.run(sending.send_and_wait(timeout) if wait or first else sending.send())
    if as_json:
        print_json(sent)
    elif not wait and not first:
        echo(sent["messageId"])
    elif sent["answer"] is None:
        echo("no answer: the agent chose silence", err=True)
    if failures := sent.get("failures"):
        raise HoldfastError("; ".join(failures))


def _check_text(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("the message is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("the message is not UTF-8") from None
    return text


async def put_with_warning(
    store: Store, settings: Settings, text: str, address: Address, agent: str | None
) -> dict[str, Any]:
    """Store a message, and warn on stderr if no running process serves its agent.

    Returns `messageId`, `id` and perhaps `warning`."""
    from holdfast.routing.directory import (
        configured_routing,
        read,
        waits_for_a_server,
        waits_for_resume,
    )
    from holdfast.routing.router import put_message

    directory = await read(store, configured_routing(settings))
    message_id, id_ = await put_message(
        store, directory.routing, text, address, max_attempts=settings.max_attempts, agent=agent
    )
    # A generated id is drawn until it is new.
    assert id_ is not None
    sent: dict[str, Any] = {"messageId": message_id, "id": id_}
    missing = directory.missing(text, agent)
    paused = directory.paused_agent(text, agent)
    if missing is not None or paused is not None:
        sent["warning"] = (
            waits_for_a_server(missing) if missing is not None else waits_for_resume(paused or "")
        )
        echo(f"holdfast: {sent['warning']}", err=True)
    return sent


class AnswerPrinter:
    """Prints answers; from the second agent on, with the agent's name before them.

    At a terminal, the first answer is printed as it grows."""

    def __init__(self) -> None:
        self._first: str | None = None
        self._growing = GrowingText()

    async def show(self, frame: Payload) -> None:
        self._growing.apply(frame)

    def print(self, response: Event) -> None:
        agent, text = str(response.event.get("agent") or ""), response.event.get("message")
        if self._first is None and self._growing.shown:
            self._growing.finish(str(text))
        else:
            echo(text if self._first in (None, agent) else f"@{agent}: {text}")
        self._first = agent if self._first is None else self._first
        sys.stdout.flush()

    def end(self) -> None:
        self._growing.end()


class _Sending:
    """One message on its way, and the answers to it."""

    def __init__(
        self,
        settings: Settings,
        text: str,
        agent: str | None,
        sender: str,
        first_only: bool,
        quiet: bool,
    ) -> None:
        self._settings, self._text, self._agent, self._sender = settings, text, agent, sender
        self._first_only = first_only
        self._printer = None if quiet else AnswerPrinter()

    async def send(self) -> dict[str, Any]:
        async with open_existing(self._settings) as store:
            return await self._put(store)

    async def send_and_wait(self, limit: timedelta) -> dict[str, Any]:
        """Send, wait for the answers and print them; raise an error if they do not come in time."""
        from holdfast.cli.answers import answer_reader

        async with open_existing(self._settings) as store, answer_reader(store) as reader:
            sent = await self._put(store)
            try:
                async with asyncio.timeout(limit.total_seconds()):
                    await self._collect(reader, sent)
            except TimeoutError:
                raise HoldfastError(await _describe_timeout(store, sent, limit)) from None
            except asyncio.CancelledError:
                # Ctrl-C ends the waiting alone.
                echo(f"holdfast: interrupted, event {sent['id']} stays stored", err=True)
                raise
        return sent

    async def _put(self, store: Store) -> dict[str, Any]:
        from holdfast.routing.router import Address

        address = Address(sender=self._sender)
        return await put_with_warning(store, self._settings, self._text, address, self._agent)

    async def _collect(self, reader: AnswerReader, sent: dict[str, Any]) -> None:
        answers = sent["answers"] = []
        printer = self._printer
        # A pipe gets whole answers: one that starts over cannot be taken back.
        show = printer.show if printer is not None and sys.stdout.isatty() else None
        try:
            async for response in reader.answers(sent["messageId"], show):
                answers.append(response.event)
                if printer is not None:
                    printer.print(response)
                if self._first_only:
                    break
            else:
                sent["failures"] = await reader.failures(sent["messageId"])
        finally:
            if printer is not None:
                printer.end()
        sent["answer"] = answers[0] if answers else None


async def _describe_timeout(store: Store, sent: dict[str, Any], limit: timedelta) -> str:
    """Say that answers are missing, and give a hint if no process works here."""
    what = "not all answers came" if sent.get("answers") else "no answer"
    hint = "" if await store.processes() else "; no process works here, start `holdfast up`"
    return f"{what} within {limit.total_seconds():g} s, event {sent['id']} stays stored{hint}"
