"""Messages are routed when they are stored, by the examples of the contract."""

from __future__ import annotations

import pytest

from holdfast import AgentHarness, Turn
from holdfast.agents.base import Team
from holdfast.chat import ChatStore
from holdfast.errors import HoldfastError, Unknown
from holdfast.queue.event import INBOX, Event
from holdfast.routing import directory
from holdfast.routing.router import Address, Route, Routing, put_message
from holdfast.testing.trial import trial

ROUTING = Routing(
    default="host",
    lanes={"host": "conversation", "coder": "conversation", "writer": "agent", "Mixed": "none"},
    attempts={"writer": 2},
    names={"coder": "Ada", "writer": "Dev"},
    teams={
        "dev": Team(name="Devs", agents=("coder", "writer"), leader="coder"),
        "ada": Team(name="writer", agents=("writer", "host"), leader="writer"),
        "coder": Team(name="Shadow", agents=("writer",), leader="writer"),
    },
)

VECTORS = [
    ("@coder hi", "coder", None, "hi"),
    ("@CODER hi", "coder", None, "hi"),
    ("@coder\nhi", "coder", None, "hi"),
    ("@coder \t\n hi\nthere ", "coder", None, "hi\nthere "),
    ("@mixed hi", "Mixed", None, "hi"),
    # An agent's id wins over a team's, a team's over an agent's name, that over a team's name.
    ("@dev hi", "coder", "dev", "hi"),
    ("@ADA hi", "writer", "ada", "hi"),
    ("@writer hi", "writer", None, "hi"),
    ("@devs hi", "coder", "dev", "hi"),
    ("@Shadow hi", "writer", "coder", "hi"),
    ("@coder @writer hi", "coder", None, "@writer hi"),
]
UNROUTED = [
    "@coder",
    "@coder ",
    "@coder\n",
    " @coder hi",
    "@coder: hi",
    "@coder, hi",
    "hi @coder",
    "@nobody x",
    "@constructor x",
    "@__class__ x",
    "@ coder hi",
    "@",
    "",
    "hi",
    "@default",
    "＠coder hi",
]


@pytest.mark.parametrize(("text", "agent", "team", "body"), VECTORS)
def test_a_text_names_its_agent(text: str, agent: str, team: str | None, body: str) -> None:
    assert ROUTING.route(text) == Route(agent, team, body)


@pytest.mark.parametrize("text", UNROUTED)
def test_any_other_text_goes_to_the_default_agent_unchanged(text: str) -> None:
    assert ROUTING.route(text) == Route("", None, None)


async def put_and_read(
    store: ChatStore, text: str, agent: str | None = None, address: Address | None = None
) -> Event:
    _, id_ = await put_message(
        store, ROUTING, text, address or Address(), max_attempts=5, agent=agent
    )
    assert id_ is not None
    event = await store.live(id_)
    assert event is not None
    return event


async def test_agent_team_and_text_are_stored_beside_what_was_written(store: ChatStore) -> None:
    event = await put_and_read(
        store, "@dev fix it", address=Address(channel="web", sender="Bo", sender_id="b1")
    )
    assert (event.target, event.lane, event.max_attempts) == ("coder", "coder/web:b1", 5)
    assert event.event == {
        "kind": "message",
        "channel": "web",
        "sender": "Bo",
        "sender_id": "b1",
        "message": "@dev fix it",
        "conversation": "web:b1",
    }
    assert (event.routed_text, event.routed_team) == ("fix it", "dev")


async def test_a_text_that_names_no_agent_is_stored_unchanged(store: ChatStore) -> None:
    event = await put_and_read(store, "@nobody x")
    assert (event.target, event.lane) == ("", "host/api:API")
    assert (event.routed_text, event.routed_team) == (None, None)


@pytest.mark.parametrize(
    ("given", "agent", "team"),
    [("CODER", "coder", None), ("Dev", "coder", "dev"), ("mixed", "Mixed", None)],
)
async def test_an_agent_given_beside_the_text_wins_and_the_text_stays(
    store: ChatStore, given: str, agent: str, team: str | None
) -> None:
    event = await put_and_read(store, "@writer hi", agent=given)
    assert (event.target, event.routed_team) == (agent, team)
    assert (event.event["message"], event.routed_text) == ("@writer hi", None)


@pytest.mark.parametrize("given", ["nobody", "constructor", "@coder", "Devs", " "])
async def test_an_unknown_agent_is_refused_and_nothing_is_stored(
    store: ChatStore, given: str
) -> None:
    with pytest.raises(Unknown, match="there is no agent named"):
        await put_and_read(store, "hi", agent=given)
    assert await store.counts() == []


async def test_lanes_and_attempts_follow_the_policy_of_the_agent(store: ChatStore) -> None:
    writer = await put_and_read(store, "@writer hi")
    mixed = await put_and_read(store, "@mixed hi")
    assert (writer.lane, writer.max_attempts, mixed.lane, mixed.max_attempts) == (
        "writer",
        2,
        None,
        5,
    )


async def routing_in(store: ChatStore) -> Routing:
    return (await directory.read(store)).routing


async def test_other_processes_route_by_the_directory_of_the_harness(store: ChatStore) -> None:
    assert await routing_in(store) == Routing()
    await ROUTING.write(store)
    assert await routing_in(store) == ROUTING
    await store.set_setting("routing", {"default": "host", "from": "a later release"})
    assert await routing_in(store) == Routing(default="host")


async def test_the_agent_gets_the_routed_text_and_histories_keep_the_original() -> None:
    app = AgentHarness(default="host")
    received: list[tuple[str, str, str | None]] = []

    @app.agent("host")
    @app.agent("coder", name="Ada")
    async def answer(turn: Turn) -> str:
        received.append((turn.agent, turn.text, turn.team))
        return f"{turn.text}!"

    app.team("dev", agents=["host", "coder"], leader="coder")
    async with trial(app) as attempt:
        for text in ("@ada one", "@dev two", "@nobody three"):
            await attempt.say(text)
            await attempt.work()
        assert received == [
            ("coder", "one", None),
            ("coder", "two", "dev"),
            ("host", "@nobody three", None),
        ]
        replies = [
            (one.event["original_message"], one.event["message"])
            for one in await attempt.responses()
        ]
        assert replies == [
            ("@ada one", "one!"),
            ("@dev two", "two!"),
            ("@nobody three", "@nobody three!"),
        ]
        lines = await attempt.store.agent_messages("coder")
        assert [line.content for line in lines[::-1]] == ["@ada one", "one!", "@dev two", "two!"]


def test_teams_are_checked_when_they_are_added() -> None:
    app = AgentHarness()
    for id_ in ("a", "b"):
        app.add(id_, lambda turn: None)
    app.team("dev", agents=["a", "b"], leader="a")
    for refused in (
        {"id": "x", "agents": ["a"], "leader": "b"},
        {"id": "dev", "agents": ["a"], "leader": "a"},
        {"id": "DEV", "agents": ["a"], "leader": "a"},
        {"id": "x", "agents": ["a", "a"], "leader": "a"},
        {"id": "two words", "agents": ["a"], "leader": "a"},
    ):
        with pytest.raises(HoldfastError):
            app.team(**refused)  # type: ignore[arg-type]


async def test_a_harness_with_a_team_of_unknown_agents_does_not_start() -> None:
    app = AgentHarness(lambda turn: None)
    app.team("dev", agents=["agent", "ghost"], leader="agent")
    with pytest.raises(HoldfastError, match="'ghost' of team 'dev' is not an agent of this app"):
        _ = app.routing


@pytest.mark.parametrize("id_", ["", "two words", "a,b", "a:b", "[a]", "@a", "#a", "a/b"])
def test_an_id_that_no_text_could_name_is_refused(id_: str) -> None:
    with pytest.raises(HoldfastError, match="cannot be an id"):
        AgentHarness().add(id_, lambda turn: None)


def test_ids_that_differ_only_by_case_are_refused() -> None:
    app = AgentHarness()
    app.add("coder", lambda turn: None)
    with pytest.raises(HoldfastError, match="two agents"):
        app.add("CODER", lambda turn: None)


def test_inbox_is_the_queue_of_messages() -> None:
    assert ROUTING.event({}, Route(), "c", message_id=None, max_attempts=None).queue == INBOX
