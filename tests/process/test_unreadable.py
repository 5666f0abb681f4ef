"""One unreadable row does not end a process, an API route or a command."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.agents.echo import echo
from holdfast.app import AgentHarness
from holdfast.queue.event import INBOX, OUTBOX, FinishedEvent
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from tests.api.serving import ask, serving
from tests.cli.shell import Shell
from tests.conformance.by_hand import GOOD, ODD_PAYLOADS, insert
from tests.steps import both_engines, running, until

ROUTES = (
    "/api/queue/status",
    "/api/queue/agents",
    "/api/queue/processing",
    "/api/queue/dead",
    "/api/queue/dead?queue=outbox",
    "/api/responses",
    "/api/responses/pending?channel=api",
)


def insert_odd_rows(url: str) -> int:
    for queue in (INBOX, OUTBOX, "memory"):
        for columns in ODD_PAYLOADS.values():
            insert(
                url,
                {"queue": f"'{queue}'", "target": "'api'" if queue == OUTBOX else "''", **columns},
            )
    return insert(url, GOOD)


@both_engines
async def test_issue_13_11_one_unreadable_row_does_not_end_a_process(settings: Settings) -> None:
    good = insert_odd_rows(settings.database)
    async with running(AgentHarness(echo), settings) as app:
        dead_letters = await until(lambda: _dead(app, len(ODD_PAYLOADS)))
        assert {letter.error_class for letter in dead_letters} == {"Unreadable"}
        await until(lambda: _completed(app, good))
        assert (await app.put("still here")) is not None


@both_engines
async def test_one_unreadable_row_does_not_end_a_route(settings: Settings) -> None:
    insert_odd_rows(settings.database)
    app = AgentHarness(echo)
    app.settings = settings
    async with serving(app) as port:
        await until(lambda: _dead(app, len(ODD_PAYLOADS)))
        for route in ROUTES:
            assert (await ask(port, route))[0] == 200, route


@both_engines
async def test_one_unreadable_row_does_not_end_a_command(
    settings: Settings, tmp_path: Path
) -> None:
    insert_odd_rows(settings.database)
    async with running(AgentHarness(echo), settings) as app:
        [letter, *_] = await until(lambda: _dead(app, len(ODD_PAYLOADS)))
    shell = Shell(tmp_path, settings.database)
    for command in (["dead", "list"], ["dead", "show", str(letter.id)], ["history"], ["status"]):
        assert await asyncio.to_thread(shell.out, *command)


async def _dead(app: AgentHarness, count: int) -> list[FinishedEvent]:
    dead_letters = await app.store.dead(Filter(queue=INBOX), limit=100)
    return list(dead_letters) if len(dead_letters) == count else []


async def _completed(app: AgentHarness, id_: int) -> bool:
    return bool(await app.store.finished(Filter(ids=[id_], outcomes=["completed"])))
