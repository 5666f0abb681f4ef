"""`holdfast send`: store a message and, if wanted, wait for the answer."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
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
from holdfast.cli.printing import echo, print_json
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.queue.event import Event, FinishedEvent
    from holdfast.settings import Settings
    from holdfast.store import Store

CHANNEL = "api"
LOOK_AGAIN = timedelta(milliseconds=500)
"""The safety net under the signals; a turn that ends in silence gives none."""


def send(
    text: Annotated[str, typer.Argument(help="The message; - reads it from stdin.")],
    agent: Annotated[
        str | None, typer.Option(help="Who shall answer (default: the default agent)")
    ] = None,
    sender: Annotated[
        str | None, typer.Option(help="Whose conversation it is (default: your login name)")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the answer and print it.")] = False,
    timeout: Annotated[
        timedelta,
        typer.Option(parser=parse_duration, metavar="DURATION", help="How long --wait waits"),
    ] = "5min",  # type: ignore[assignment]
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Store a message for an agent."""
    message = _checked(sys.stdin.read() if text == "-" else text)
    settings = load_settings(config, database=database, home=home)
    sent = asyncio.run(
        _send(settings, message, agent, sender or login_name(), timeout if wait else None)
    )
    if as_json:
        print_json(sent)
    elif not wait:
        echo(sent["messageId"])
    elif sent["answer"] is None:
        echo("no answer: the agent chose silence", err=True)
    else:
        echo(sent["answer"]["message"])


def _checked(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("the message is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("the message is not UTF-8") from None
    return text


async def _send(
    settings: Settings, text: str, agent: str | None, sender: str, patience: timedelta | None
) -> dict[str, Any]:
    from holdfast.routing.directory import configured, read, waits_for_a_server
    from holdfast.routing.router import Address, put_message

    async with open_existing(settings) as store, asyncio.TaskGroup() as group:
        woken = asyncio.Event()
        # Before the message is stored, so that no signal of its answer is missed.
        listening = group.create_task(_listen(store, woken)) if patience is not None else None
        directory, address = await read(store, configured(settings)), Address(sender=sender)
        message_id, id_ = await put_message(
            store, directory.routing, text, address, max_attempts=settings.max_attempts, agent=agent
        )
        # A generated id is drawn until it is new.
        assert id_ is not None
        sent: dict[str, Any] = {"messageId": message_id, "id": id_}
        missing = directory.missing(text, agent)
        if missing is not None:
            sent["warning"] = waits_for_a_server(missing)
            echo(f"holdfast: {sent['warning']}", err=True)
        if patience is not None and listening is not None:
            response = await _await_response(store, id_, message_id, patience, woken)
            sent["answer"] = None if response is None else response.event
            listening.cancel()
    return sent


async def _listen(store: Store, woken: asyncio.Event) -> None:
    async for _ in store.wakeups():
        woken.set()


async def _await_response(
    store: Store, id_: int, message_id: str, patience: timedelta, woken: asyncio.Event
) -> Event | None:
    """The response, acked; None for silence. A dead letter or the end of patience is refused."""
    try:
        async with asyncio.timeout(patience.total_seconds()):
            ended = await _await_end(store, id_, woken)
            if ended.outcome != "completed":
                raise HoldfastError(
                    f"{_named(ended)} ended {ended.outcome}: {ended.last_error or 'no error'}"
                )
            response = await _response_to(store, id_, message_id)
            if response is not None:
                await store.ack(response.id)
            return response
    except TimeoutError:
        working = (
            ""
            if await store.processes()
            else "; nobody works on this database, start `holdfast up`"
        )
        raise HoldfastError(
            f"no answer within {patience.total_seconds():g} s, event {id_} stays stored{working}"
        ) from None


async def _await_end(store: Store, id_: int, woken: asyncio.Event) -> FinishedEvent:
    from holdfast.queue.store import Filter

    while True:
        woken.clear()
        found = await store.finished(Filter(ids=[id_]))
        if found:
            return found[0]
        with suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), LOOK_AGAIN.total_seconds())


async def _response_to(store: Store, id_: int, message_id: str) -> Event | None:
    """The response to a message that ended, also if its turn collected it with others; None if there is none.

    It was stored with the end of its message. Another client may have acked it meanwhile."""
    from holdfast.queue.event import OUTBOX
    from holdfast.queue.store import Filter

    limit = 100
    while True:
        waiting = await store.waiting(OUTBOX, CHANNEL, limit=limit)
        found = next((event for event in waiting if _answers(event, id_, message_id)), None)
        if found is not None:
            return found
        if len(waiting) < limit:
            break
        limit *= 10
    acked = await store.finished(Filter(queue=OUTBOX, target=CHANNEL), limit=1000, since_id=id_)
    return next((event for event in acked if _answers(event, id_, message_id)), None)


def _answers(response: Event, id_: int, message_id: str) -> bool:
    return response.root_id == id_ or message_id in (response.event.get("message_ids") or ())


def _named(event: Event) -> str:
    return f"message {event.message_id} (event {event.id})"
