"""Lines of agents' histories from before they shared the ids of events."""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast.chat import AgentMessage
from holdfast.migrations.runner import SCRIPTS, migrate
from holdfast.store import open_store
from tests.migrations.conftest import Query

MESSAGE = '{"kind": "message", "channel": "api", "sender": "ann", "message": "%s"}'


def scripts_before(folder: Path) -> Path:
    """The scripts before the one that joined the ids, and without functions, which need it."""
    scripts = folder / "scripts"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("idempotent"))
    (scripts / "idempotent").mkdir()
    for first in scripts.glob("*/*-line-id.sql"):
        for path in first.parent.glob("*.sql"):
            if path.name >= first.name:
                path.unlink()
    return scripts


async def test_earlier_lines_keep_their_ids_and_later_ones_follow(
    empty_url: str, query: Query, tmp_path: Path
) -> None:
    migrate(empty_url, scripts=scripts_before(tmp_path), version="0.5.0")
    for text in ("one", "two", "three"):
        query(
            "insert into agent.agent_message (agent_id, role, channel, sender, message_id, content)"
            f" values ('coder', 'user', 'api', 'ann', 'm', '{text}')"
        )
    for text in ("waiting", "dead"):
        query(f"insert into agent.event (event, target) values ('{MESSAGE % text}', 'coder')")
    columns = (
        "id, queue, target, head, event_ts, attempts, vt, claimed, event, fence, hops, created_at,"
        " updated_at"
    )
    query(
        f"insert into agent.event_hist ({columns}, outcome, finished_at)"
        f" select {columns}, 'dead', updated_at from agent.event where id = 2"
    )
    query("delete from agent.event where id = 2")
    migrate(empty_url)
    async with open_store(empty_url) as store:
        answer = AgentMessage(
            agent_id="coder",
            role="assistant",
            channel="api",
            sender="coder",
            message_id="m",
            content="answer",
        )
        await store.put([], records=[answer])
        lines = [(line.id, line.content) for line in await store.agent_messages("coder")][::-1]
    contents = ["one", "two", "three", "waiting", "dead", "answer"]
    assert lines == list(enumerate(contents, 1))
