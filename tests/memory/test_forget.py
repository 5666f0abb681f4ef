"""Forgetting a person leaves nothing behind, also when the events were pruned long ago."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import AgentHarness, Turn
from holdfast.agents.base import Reply, Team
from holdfast.api.app import create_app
from holdfast.chat import AgentMessage, ChatMessage, ChatStore
from holdfast.consumers.inbox import response
from holdfast.consumers.memory import KnowledgeStoreOutboxRelay
from holdfast.memory.observation import Observation
from holdfast.message import subject_of
from holdfast.queue.audit import AuditFilter
from holdfast.queue.event import INBOX, MEMORY, OUTBOX, NewEvent
from holdfast.queue.outcome import Done
from holdfast.queue.record import Activity
from holdfast.queue.store import Filter, SweepPolicy
from holdfast.routing import rooms as room
from holdfast.routing.files import Attachments
from holdfast.routing.handoff import Teamwork, origin_of
from holdfast.routing.router import Routing
from holdfast.settings import Settings, sqlite_path
from holdfast.store import open_store
from holdfast.store.files import person_folder, write_file
from holdfast.store.forget import forget
from holdfast.store.memory import open_knowledge, open_observations, open_people
from tests.conformance.steps import claim_one
from tests.contract.http.steps import HOST
from tests.memory.steps import has_live, tables_that_hold, wait_indexed

NAME = "zyzzyva"
PERSON = {"channel": "web", "sender": "Zyzzyva Quux", "sender_id": NAME}
IDENTITY = f"web:id:{NAME}"
SUBJECT = f"default:USER:{IDENTITY}"
NOW = timedelta(0)


def team_app(url: str, home: Path) -> AgentHarness:
    """Return an app with a room and two agents, which repeat messages to each other, to their
    memory, as results of steps and in texts that grow."""
    app = AgentHarness(default="coder", settings=Settings(home=home, database=url, api_auth="none"))

    async def note(text: str) -> str:
        return f"noted {text}"

    @app.agent("coder", max_attempts=1, memory=True)
    async def coder(turn: Turn) -> str:
        await turn.step(f"note for {turn.sender}", note, turn.text)
        await turn.files()
        turn.progress(f"reading what {turn.sender} wrote")
        await turn.write(f"dear {turn.sender}, ")
        if "break" in turn.text:
            raise RuntimeError(f"cannot do what {turn.sender} wants: {turn.text}")
        turn.memory.observe(f"{turn.sender} wrote {turn.text}")
        turn.memory.observe(f"told by {turn.sender}", about="AGENT")
        return f"hello {turn.sender} [@writer: ask {turn.text}] [#dev: {turn.sender} is here]"

    @app.agent("writer")
    async def writer(turn: Turn) -> str:
        return f"written for {turn.text}"

    app.team("dev", name="Devs", agents=["coder", "writer"], leader="coder")
    return app


@asynccontextmanager
async def running(app: AgentHarness) -> AsyncIterator[ChatStore]:
    async with asyncio.TaskGroup() as group:
        await app.run(task_group=group)
        try:
            yield app.store
        finally:
            app.stop()


async def settled(store: ChatStore) -> None:
    """Wait until all messages were worked and all changes indexed."""
    async with asyncio.timeout(60):
        while await has_live(store, INBOX):  # noqa: ASYNC110 - the database has no signal
            await asyncio.sleep(0.02)
    await wait_indexed(store)


async def talk(app: AgentHarness, store: ChatStore, who: str, sender: str) -> None:
    """Write a few messages, choose a default agent, and have the answers fetched."""
    address = {"channel": "web", "sender": sender, "sender_id": who}
    for text in (
        f"I am {who} of {sender}",
        "@writer",
        f"@coder my word is {who}",
        f"@coder break {who}",
    ):
        await app.put(text, **address)
    await settled(store)
    await send_upload(app, who, sender)
    await settled(store)
    for answer in await app.responses("web"):
        await app.ack(answer.id)


async def send_upload(app: AgentHarness, who: str, sender: str) -> None:
    """Upload a file and send it with a message, as the page does."""
    transport = httpx.ASGITransport(create_app(app, HOST), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        content = f"a letter of {sender}"
        file = await client.post("/api/files", params={"name": f"{who}.txt"}, content=content)
        message = {"message": f"@coder read it, {who}", "files": [file.json()["id"]]}
        address = {"channel": "web", "sender": sender, "senderId": who}
        sent = await client.post("/api/message", json=message | address)
        assert sent.status_code == 200, sent.text


def files_that_hold(root: Path, text: str) -> list[Path]:
    """Return the files and folders whose name or content contains a text."""
    return [
        path
        for path in root.rglob("*")
        if text in path.name or (path.is_file() and text.encode() in path.read_bytes())
    ]


async def prune(store: ChatStore) -> None:
    """Remove finished events, as a day's sweeps on SQLite do."""
    for queue in (INBOX, OUTBOX, MEMORY):
        await store.sweep(SweepPolicy(queue=queue, keep_history=NOW))


def keep_files(app: AgentHarness, who: str, sender: str) -> list[Path]:
    """Store files as a channel does that fetches them, in two conversations of one person."""
    assert app.settings is not None
    paths = []
    for conversation in (f"web:{who}", "web:everybody"):
        payload = {
            "kind": "message",
            "channel": "web",
            "sender": sender,
            "sender_id": who,
            "conversation": conversation,
        }
        paths.append(person_folder(app.settings.files, payload) / "m1" / "photo.txt")
        write_file(paths[-1], f"a photo of {sender}".encode())
    return paths


def about(kind: str, id_: str, **fields: Any) -> Observation:
    return Observation(workspace_id="default", subject_type=kind, subject_id=id_, **fields)


def bytes_left(url: str, text: str) -> int:
    """Count a text in the raw files of a SQLite database."""
    path = sqlite_path(url)
    if path is None:
        return 0
    files = [file for file in path.parent.iterdir() if file.is_file()]
    return sum(file.read_bytes().lower().count(text.lower().encode()) for file in files)


async def test_issue_13_4_forgetting_after_pruning_leaves_no_trace_in_tables_index_and_raw_files(
    database_url: str, tmp_path: Path
) -> None:
    app = team_app(database_url, tmp_path)
    async with running(app) as store:
        await store.set_setting("activity", True)
        for number in range(20):
            await app.put(f"noise {number} of somebody else", channel="web", sender=f"Bob {number}")
        await talk(app, store, NAME, PERSON["sender"])
        await talk(app, store, "bob", "Bob")
        mine, others = keep_files(app, NAME, PERSON["sender"]), keep_files(app, "bob", "Bob")
        await prune(store)
        assert {event.outcome for event in await store.finished(Filter(queue=INBOX))} == {"dead"}
        held = {*tables_that_hold(database_url, NAME), *tables_that_hold(database_url, "Quux")}
        assert {"agent_message", "chat_message", "activity", "observation", "knowledge"} <= held
        assert {"step", "journal_text", "file"} <= held
        root = tmp_path / "files"
        assert len(files_that_hold(root, "Quux")) == 4
        known = open_observations(store), open_knowledge(store)
        removed = await forget(*known, "default", "USER", NAME, actor="cli:root", files=root)
        assert removed["files"] == 4
        assert [path.exists() for path in (*mine, *others)] == [False, False, True, True]
        assert {name for name, count in removed.items() if count} >= {
            "history",
            "agent_messages",
            "chat_messages",
            "activity",
            "settings",
            "observations",
            "index",
        }
        for word in (NAME, "Quux"):
            assert tables_that_hold(database_url, word) == []
            assert bytes_left(database_url, word) == 0
            assert files_that_hold(root, word) == []
        assert len(files_that_hold(root, "Bob")) == 4
        assert "agent_message" in tables_that_hold(database_url, "my word is bob")
        assert any("Bob is here" in line.message for line in await store.chat_messages("dev"))
        assert len(await store.dead(Filter(queue=INBOX))) == 1
    assert bytes_left(database_url, NAME) == 0


async def test_a_reworded_prompt_of_rooms_does_not_hinder_forgetting(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies carry the key of their line, so the wording of the prompt does not matter."""
    monkeypatch.setattr(room, "prompt_of", lambda line: f"somebody whispers: {line.message!r}")
    message = NewEvent(event={"kind": "message", **PERSON, "message": "hi"}, message_id="m1")
    await store.put([message])
    leased = await claim_one(store)
    turn = Turn(leased, "a")
    routing = Routing(
        default="a",
        lanes={"a": "conversation", "b": "conversation"},
        teams={"dev": Team(name="Devs", agents=("a", "b"), leader="a")},
    )
    teamwork = Teamwork(routing, Attachments(Path("files")), store)
    shared = await teamwork.parse(turn, Reply("[#dev: a secret] [#dev: another]"))
    # Older releases stored no person with a line, so that only its copies lead to it.
    lines = tuple(replace(line, subject="") for line in shared.lines)
    await store.settle([(leased, Done(shared.emits, lines))])
    await store.say(
        ChatMessage(team_id="dev", from_agent="a", message="a secret", subject="default:USER:bob")
    )
    removed = await open_observations(store).forget("default", "USER", IDENTITY)
    assert (removed["chat_messages"], removed["events"]) == (2, 2)
    assert [line.subject or line.message for line in await store.chat_messages("dev")] == [
        "a secret"
    ]


async def test_lines_without_a_person_are_counted_and_those_of_a_persons_own_conversation_go(
    store: ChatStore,
) -> None:
    """Rows of earlier releases have no subject."""

    def line(message_id: str, conversation: str) -> AgentMessage:
        return AgentMessage(
            agent_id="a",
            role="user",
            channel="web",
            sender="x",
            message_id=message_id,
            content="hi",
            conversation=conversation,
        )

    old = [line("m1", f"web:{NAME}"), line("m2", "slack:T1:C1:1.2"), line("m3", "web:bob")]
    frames = Activity(({"type": "chain_step_done", "messageId": "m2", "response": "hi"},))
    await store.set_setting("activity", True)
    await store.put(
        [], records=[*old, frames, ChatMessage(team_id="dev", from_agent="a", message="hi")]
    )
    removed = await open_observations(store).forget("default", "USER", IDENTITY)
    assert removed["agent_messages"] == 1
    assert {name: count for name, count in removed.items() if name.startswith("unattributed_")} == {
        "unattributed_agent_messages": 2,
        "unattributed_chat_messages": 1,
        "unattributed_activity": 1,
    }


async def test_messages_that_agents_derive_from_a_slack_message_belong_to_its_person(
    store: ChatStore,
) -> None:
    """Hand-offs and answers carry the workspace, so forgetting finds them after pruning."""

    slack = {
        "type": "app_mention",
        "team": "T1",
        "channel": "C1",
        "user": "U1",
        "ts": "1.2",
        "text": "hi",
    }
    await store.put([NewEvent(event=slack, message_id="m1")])
    turn = Turn(await claim_one(store), "a")
    handed_on = {"kind": "message", **origin_of(turn), "message": "help"}
    answer = response(turn, Reply("hello"))
    assert {subject_of(slack), subject_of(handed_on), subject_of(answer.event)} == {
        "T1:USER:slack:id:U1"
    }
    await store.settle([(turn.leased, Done((answer, NewEvent(event=handed_on, lane="later"))))])
    await prune(store)
    removed = await open_observations(store).forget("T1", "USER", "slack:id:U1")
    assert removed["events"] == 2


async def write_activity(store: Any, frames: str) -> None:
    """Write a row that no store would write."""
    if hasattr(store.engine, "write"):
        statement = "insert into activity (frames) values (?)"
        await store.engine.write(lambda db: db.connection.execute(statement, (frames,)).fetchall())
    else:
        await store.engine.connections.rows(
            "insert into agent.activity (frames) values (%s) returning id", (frames,)
        )


async def test_a_stream_resumes_exactly_inside_a_row_that_was_forgotten(store: ChatStore) -> None:
    """Frames of others keep their positions, however often the row is rewritten."""
    await store.set_setting("activity", True)
    people = [
        {"kind": "message", "channel": "web", "sender_id": who, "message": "hi"}
        for who in ("bob", NAME, "bob")
    ]
    await store.put(
        [NewEvent(event=event, message_id=f"m{nth}") for nth, event in enumerate(people)]
    )
    before = [frame.get("messageId") for row in await store.activity(0) for frame in row.frames]
    await write_activity(store, '["by hand", 7, null]')
    await write_activity(store, '"by hand"')
    for _ in range(2):
        await prune(store)
        await open_observations(store).forget("default", "USER", IDENTITY)
        [row, *_] = await store.activity(0)
        after = [frame.get("messageId") for frame in row.frames]
        assert after == [None if name == "m1" else name for name in before]
        assert all("subject" not in frame for frame in row.frames)


async def test_observations_from_pruned_messages_alone_are_removed(store: ChatStore) -> None:
    event = {"kind": "message", **PERSON, "message": "hi"}
    await store.put([NewEvent(event=event, message_id="m1")])
    turn = await claim_one(store)
    line = AgentMessage(
        agent_id="a",
        role="user",
        channel="",
        sender="x",
        message_id="m1",
        content="hi",
        subject=subject_of(event),
    )
    await store.settle([(turn, Done((), (line,)))])
    observations, knowledge = open_observations(store), open_knowledge(store)
    for id, sources in (("one", ("m1",)), ("two", ("m1", "m2"))):
        await observations.save(
            about("AGENT", "a", id=id, content="learned", source_message_ids=sources)
        )
    await KnowledgeStoreOutboxRelay(observations, knowledge).drain_once()
    await prune(store)
    removed = await forget(observations, knowledge, "default", "USER", NAME)
    assert removed["observations"] == 1
    assert [known.id for known in await observations.find_by_subject("default", "AGENT", "a")] == [
        "two"
    ]


async def test_words_of_deleted_documents_are_gone_from_the_full_text_index(
    database_url: str,
) -> None:
    """FTS5 keeps words of deleted documents in its segments until it merges them."""
    async with open_store(database_url) as store:
        observations, knowledge = open_observations(store), open_knowledge(store)
        relay = KnowledgeStoreOutboxRelay(observations, knowledge)
        for number in range(5):
            await observations.save(
                about("USER", NAME, id=f"o{number}", content=f"quuxword{number} {NAME}")
            )
            await relay.drain_once()
            await observations.delete("default", f"o{number}")
            await relay.drain_once()
        if sqlite_path(database_url) is not None:
            assert bytes_left(database_url, "quuxword") > 0
        await forget(observations, knowledge, "default", "USER", NAME, vacuum=True)
        assert bytes_left(database_url, "quuxword") == bytes_left(database_url, NAME) == 0


async def test_forgetting_a_person_forgets_their_linked_identities(
    store: ChatStore, database_url: str, tmp_path: Path
) -> None:
    """The link goes, too, and others keep theirs."""
    people, observations, knowledge = (
        open_people(store),
        open_observations(store),
        open_knowledge(store),
    )
    first, second = SUBJECT, f"T1:USER:slack:id:{NAME}-at-work"
    await people.link(first, second)
    await people.link("default:USER:bob", "T1:USER:bob-at-work")
    await observations.save(about("USER", NAME, id="a", content="likes tea"))
    work = {
        "type": "app_mention",
        "team": "T1",
        "channel": "C1",
        "user": f"{NAME}-at-work",
        "ts": "1.2",
        "text": "hi",
    }
    await store.put([NewEvent(event=work, message_id="m1")])
    write_file(person_folder(tmp_path, work) / "1.2" / "plan.pdf", b"x")
    removed = await forget(
        observations, knowledge, "default", "USER", NAME, actor="cli:root", files=tmp_path
    )
    assert (removed["observations"], removed["events"], removed["files"]) == (1, 2, 1)
    assert tables_that_hold(database_url, NAME) == []
    assert await people.groups() == [["T1:USER:bob-at-work", "default:USER:bob"]]
    subjects = {entry.subject for entry in await store.audit_log(AuditFilter(action="forgot"))}
    assert subjects >= {await store.pseudonym(first), await store.pseudonym(second)}


async def test_a_subject_without_a_channel_means_everybody_with_that_id_or_name(
    store: ChatStore,
) -> None:
    """The operator may not know the channel. A subject of an earlier release means itself."""
    observations, knowledge, people = (
        open_observations(store),
        open_knowledge(store),
        open_people(store),
    )
    ann = {"kind": "message", "message": "hi", "sender": "Ann", "sender_id": NAME}
    named = {"kind": "message", "message": "hi", "sender": NAME, "channel": "mail"}
    other = {
        "kind": "message",
        "message": "hi",
        "sender": "Ann",
        "sender_id": f"web:id:{NAME}",
        "channel": "mail",
    }
    for payload in (
        ann | {"channel": "api"},
        ann | {"channel": "web"},
        named,
        other,
        ann | {"workspace": "T1"},
    ):
        await store.put([NewEvent(event=payload)])
    assert await people.known_as(f"default:USER:{NAME}") == [
        f"default:USER:api:id:{NAME}",
        f"default:USER:mail:name:{NAME}",
        f"default:USER:web:id:{NAME}",
    ]
    await people.link(f"default:USER:{NAME}", f"default:USER:api:id:{NAME}")
    assert (await forget(observations, knowledge, "default", "USER", f"api:id:{NAME}"))[
        "events"
    ] == 1
    assert (await forget(observations, knowledge, "default", "USER", NAME))["events"] == 2
    assert [count.ready for count in await store.counts()] == [2]


async def test_files_of_earlier_releases_are_counted(store: ChatStore, tmp_path: Path) -> None:
    """Their path does not name a person."""
    for path in (
        "slack/C1-1.2/F1-plan.pdf",
        "conversations/abc/1.2/F2-plan.pdf",
        "shared/logo.png",
    ):
        write_file(tmp_path / path, b"x")
    removed = await forget(
        open_observations(store), open_knowledge(store), "T1", "USER", "U1", files=tmp_path
    )
    assert (removed["files"], removed["unattributed_files"]) == (0, 2)


async def test_a_subject_that_is_not_a_person_is_forgotten(store: ChatStore) -> None:
    removed = await forget(
        open_observations(store), open_knowledge(store), "default", "TOPIC", "weather"
    )
    assert removed["observations"] == 0
