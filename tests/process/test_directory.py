"""The directory: agents, teams and limits of all live processes, merged."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest

from holdfast.agents.base import Answer, Team
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.chat import ChatStore
from holdfast.errors import Unknown
from holdfast.queue.store import Process, Store
from holdfast.routing import directory
from holdfast.routing.directory import Directory, configured_routing, merge
from holdfast.routing.router import Routing
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.telemetry import AGENT_UNSERVED
from tests.growth import superlinear
from tests.steps import NEVER, both_engines, finished, running, until


def app_of(*agents: str, default: str | None = None, **policies: Any) -> AgentHarness:
    """Return an app whose agents answer with their names."""
    app = AgentHarness(default=default)
    for id_ in agents:

        async def answer(turn: Turn, id_: str = id_) -> Answer:
            return id_

        app.add(id_, answer, **policies)
    return app


@asynccontextmanager
async def register_elsewhere(
    url: str, id_: str, serves: AgentHarness | None, *, ago: timedelta
) -> AsyncIterator[Store]:
    """Register a process of another machine, `ago`; without `serves` it is one of release 0.4.0."""
    async with open_store(url) as store:
        now = await store.now()
        offer = None if serves is None else asdict(serves.routing)
        await store.register(
            Process(id=id_, host="elsewhere", started_at=now - ago, seen_at=now, serves=offer)
        )
        yield store


EARLIER, LATER = timedelta(hours=1), timedelta(hours=-1)


async def answers(app: AgentHarness, count: int) -> list[str]:
    """Return the agents that answered, in the order of the messages."""
    await finished(app.store, count, queue="inbox")
    return [response.event["message"] for response in await app.responses("api")]


@both_engines
async def test_the_last_process_to_start_overwrites_nobody(settings: Settings) -> None:
    quick: dict[str, Any] = {"poll": NEVER}
    async with (
        running(app_of("coder"), settings, **quick) as one,
        running(app_of("writer"), settings, **quick) as two,
    ):
        await two.put("for the coder", agent="coder")
        await two.put("@coder for the coder")
        await one.put("@writer for the writer")
        assert sorted(await answers(one, 3)) == ["coder", "coder", "writer"]


@both_engines
async def test_a_process_that_ends_takes_its_agents_with_it(settings: Settings) -> None:
    async with running(app_of("coder"), settings) as one:
        async with running(app_of("writer"), settings):
            assert sorted((await directory.read(one.store)).routing.lanes) == ["coder", "writer"]
        await until(lambda: are_known(one.store, ["coder"]))
        with pytest.raises(Unknown, match="no agent named 'writer'; known are: coder"):
            await one.put("hello", agent="writer")
        written = await one.store.setting("routing")
        assert list(written["lanes"]) == ["coder"]


async def are_known(store: Store, agents: list[str]) -> bool:
    return sorted((await directory.read(store)).routing.lanes) == agents


@both_engines
async def test_a_process_that_dies_takes_its_agents_with_it(
    settings: Settings, database_url: str
) -> None:
    async with running(app_of("coder"), settings) as one:
        async with register_elsewhere(
            database_url, "doomed", app_of("writer", concurrency=2), ago=LATER
        ):
            assert not await are_known(one.store, ["coder"])
            await until(lambda: are_known_to_sql(one.store, ["coder", "writer"]))
        await until(lambda: are_known_to_sql(one.store, ["coder"]))
        assert await are_known(one.store, ["coder"])


async def are_known_to_sql(store: Store, agents: list[str]) -> bool:
    """Return whether SQL callers know these agents."""
    return sorted((await store.setting("routing"))["lanes"]) == agents


@both_engines
async def test_the_last_agents_stay_known_while_no_process_runs(
    settings: Settings, store: Store
) -> None:
    async with running(app_of("coder", "writer", lane="agent"), settings):
        pass
    found = await directory.read(store)
    assert (sorted(found.routing.lanes), found.routing.default, found.servers) == (
        ["coder", "writer"],
        "coder",
        {},
    )
    assert found.missing("@writer hello") == "writer"


@both_engines
async def test_messages_without_an_agent_go_to_the_default_of_the_oldest_process(
    settings: Settings,
) -> None:
    async with (
        running(app_of("writer"), settings, poll=NEVER) as older,
        running(app_of("coder"), settings, poll=NEVER) as newer,
    ):
        for number in range(6):
            await newer.put("hello", sender=str(number))
        assert await answers(newer, 6) == ["writer"] * 6
        older.stop()
        await until(lambda: default_of(newer, "coder"))
        await newer.put("hello again")
        await until(lambda: count_of(newer, 7))


async def default_of(app: AgentHarness, agent: str) -> bool:
    return bool((await app.store.setting("routing"))["default"] == agent)


async def count_of(app: AgentHarness, count: int) -> bool:
    return [response.event["message"] for response in await app.responses("api")][6:count] == [
        "coder"
    ]


@both_engines
async def test_a_process_works_messages_without_an_agent_as_the_default_of_the_fleet(
    settings: Settings, database_url: str
) -> None:
    """The oldest process has the default coder; another one serves coder beside its own default."""
    async with (
        register_elsewhere(database_url, "oldest", app_of("coder"), ago=EARLIER),
        running(app_of("writer", "coder"), settings, poll=NEVER) as app,
    ):
        await app.put("hello")
        assert await answers(app, 1) == ["coder"]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_sql_callers_find_the_default_and_lanes_of_all_processes(settings: Settings) -> None:
    event = '{"type": "app_mention", "channel": "C1", "ts": "1.000001", "text": "hi"}'
    async with (
        running(app_of("coder"), settings) as one,
        running(app_of("writer", lane="agent"), settings),
        one.store.transaction() as transaction,
    ):
        for agent in (None, "writer"):
            await transaction.execute(
                "select agent.insert_event(%s, _agent => %s, _message_id => %s)",
                (event, agent, f"m {agent}"),
            )
        cursor = await transaction.execute(
            "select target, lane from agent.event where queue = 'inbox' order by id"
        )
        assert await cursor.fetchall() == [("", "coder/slack:C1:1.000001"), ("writer", "writer")]


@both_engines
async def test_a_process_of_the_previous_release_keeps_its_agents(
    settings: Settings, database_url: str
) -> None:
    """It overwrites the setting in which 0.4.0 kept the agents of all processes."""
    async with running(app_of("coder"), settings) as one:
        async with register_elsewhere(database_url, "old", None, ago=LATER) as old:
            await old.set_setting(
                "routing", {"default": "writer", "lanes": {"writer": "agent"}, "teams": {}}
            )
            assert await are_known(one.store, ["coder", "writer"])
            await old.wake("routing")
            await until(lambda: are_known_to_sql(one.store, ["coder", "writer"]))
            assert await are_known(one.store, ["coder", "writer"])
            assert (await one.store.setting("routing"))["default"] == "coder"
            await old.unregister("old")
        assert await are_known(one.store, ["coder"])


@both_engines
async def test_the_smaller_of_two_limits_holds_while_its_process_lives(
    settings: Settings, store: Store
) -> None:
    async def slots(store: Store) -> int:
        turns = await store.claim("inbox", ["coder"], limit=10, lease=timedelta(minutes=1))
        await store.release(turns)
        return len(turns)

    async with running(
        app_of("coder", concurrency=3), settings.model_copy(update={"start_stagger": NEVER})
    ) as one:
        stalled = settings.model_copy(update={"start_stagger": NEVER})
        for number in range(5):
            await one.put("hello", sender=str(number), agent="coder")
        async with running(app_of("coder", concurrency=2), stalled):
            assert await slots(store) == 2
        await until(lambda: is_equal(slots(store), 3))


async def is_equal(asked: Any, expected: int) -> bool:
    return bool(await asked == expected)


async def test_conflicts_are_logged_at_start(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = app_of("coder", "writer"), app_of("writer", "coder", concurrency=1)
    one.team("dev", agents=["coder", "writer"], leader="coder")
    two.team("dev", agents=["writer"], leader="writer")
    async with running(one, settings):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            async with running(two, settings):
                pass
    lines = "\n".join(record.getMessage() for record in caplog.records)
    assert "two default agents: coder holds, not writer" in lines
    assert (
        "team dev is defined twice: coder, writer led by coder holds, not writer led by writer"
        in lines
    )
    assert "two limits (concurrency) of agent coder: none and 1; the smaller holds" in lines


def test_replicas_of_one_app_are_no_conflict() -> None:
    routing = app_of("coder", "writer").routing
    assert (
        Directory(entries=[("one", routing), ("two", routing), ("three", routing)]).conflicts == []
    )


def test_a_conflict_of_many_replicas_is_reported_once() -> None:
    one, two = app_of("coder").routing, app_of("writer").routing
    [conflict] = Directory(entries=[("a", one), ("b", two), ("c", two)]).conflicts
    assert conflict == "two default agents: coder holds, not writer (process b)"


FLEETS = (200, 800, 3_200)


def fleet_with_conflicts(processes: int) -> Directory:
    """Return a directory whose processes share two agents and differ in one; each has its own."""
    return Directory(
        entries=[
            (
                f"p{number}",
                Routing(
                    default="shared",
                    lanes={
                        "shared": "agent",
                        "odd": ("agent", "none")[number % 2],
                        f"own{number}": "none",
                    },
                    teams={"dev": team("shared")},
                ),
            )
            for number in range(processes)
        ]
    )


def test_conflicts_take_time_in_proportion_to_the_processes() -> None:
    assert len(fleet_with_conflicts(5).conflicts) == 1
    assert not superlinear(lambda directory: directory.conflicts, fleet_with_conflicts, FLEETS)


def test_merging_takes_time_in_proportion_to_the_processes() -> None:
    def merged(directory: Directory) -> Routing:
        return merge(routing for _, routing in directory.entries)

    assert len(merged(fleet_with_conflicts(5)).lanes) == 7
    assert not superlinear(merged, fleet_with_conflicts, FLEETS)


def test_the_first_definition_wins_and_everything_else_is_merged() -> None:
    one = Routing(
        default="a",
        lanes={"a": "agent"},
        names={"a": "Ann"},
        teams={"t": team("a")},
        limits={"a": 5},
    )
    two = Routing(
        default="b",
        lanes={"a": "none", "b": "none"},
        attempts={"b": 2},
        teams={"t": team("b"), "u": team("b")},
    )
    merged = merge([one, two, Routing(limits={"a": 3, "c": 1})])
    assert (merged.default, merged.lanes, merged.names) == (
        "a",
        {"a": "agent", "b": "none"},
        {"a": "Ann"},
    )
    assert (merged.attempts, merged.limits) == ({"b": 2}, {"a": 3, "c": 1})
    assert merged.teams == {"t": team("a"), "u": team("b")}


def team(agent: str) -> Team:
    return Team(name="team", agents=(agent,), leader=agent)


def test_the_configuration_names_agents_with_the_lanes_of_their_kinds() -> None:
    tables: dict[str, Any] = {
        "coder": {"kind": "command", "command": ["true"]},
        "writer": {"kind": "echo", "lane": "none", "max_attempts": 2, "name": "Writer"},
    }
    teams = {"dev": {"agents": ["coder", "writer"], "leader": "coder"}}
    routing = configured_routing(Settings(agents=tables, teams=teams))  # type: ignore[arg-type]
    assert (routing.default, routing.lanes) == ("coder", {"coder": "agent", "writer": "none"})
    assert (routing.attempts, routing.names) == ({"writer": 2}, {"writer": "Writer"})
    assert routing.kinds == {"coder": "command", "writer": "echo"}
    assert routing.teams == {"dev": Team(name="dev", agents=("coder", "writer"), leader="coder")}


@both_engines
async def test_a_message_for_a_configured_agent_without_a_process_waits_with_a_warning(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """The API process knows the configuration; the worker runs another agent."""
    front = AgentHarness()
    tables = {"writer": {"kind": "echo"}}
    named = Settings(
        home=settings.home,
        database=settings.database,
        agents=tables,  # type: ignore[arg-type]
    )
    async with running(app_of("coder"), settings, poll=NEVER) as back:
        front.settings, front._works = named, False
        with front.using(back.store), caplog.at_level(logging.WARNING):
            await front.put("hello", agent="writer")
            await front.put("hello again", agent="writer")
        warnings = [
            record.getMessage()
            for record in caplog.records
            if "no running process serves" in record.getMessage()
        ]
        assert len(warnings) == 1
        waiting = await back.store.waiting("inbox", "writer")
        assert len(waiting) == 2
        async with running(app_of("writer"), settings):
            await finished(back.store, 2, queue="inbox")


@pytest.mark.parametrize("follows", [True, False], ids=["worker", "front"])
async def test_an_unserved_agent_is_reported_once_and_again_after_it_was_served(
    follows: bool,
    store: ChatStore,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "REMEMBERED", 0.0)
    app = app_of("coder", "writer")

    async def write() -> int:
        """Follow the directory as a worker does, write to the agent, count the reports."""
        if follows:
            app.forget_directory(await directory.publish(store))
        await app.put("hello", agent="writer")
        return caplog.text.count(AGENT_UNSERVED)

    async with register_elsewhere(database_url, "coders", app_of("coder"), ago=EARLIER):
        with app.using(store):
            assert [await write(), await write()] == [1, 1]
            async with register_elsewhere(database_url, "writers", app_of("writer"), ago=LATER):
                assert await write() == 1
            await store.unregister("writers")
            assert [await write(), await write()] == [2, 2]
