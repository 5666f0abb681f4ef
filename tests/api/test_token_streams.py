"""The event stream of tokens that may not see everything; over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.api.limits import Limits
from holdfast.api.security.caller import Callers
from holdfast.api.security.credentials import Grant, issue, revoke_token
from holdfast.errors import StoreUnavailable
from holdfast.settings import Settings
from holdfast.store.credentials import Role
from tests.api.serving import LOOPBACK, secret_of, serving
from tests.api.test_access import ask

TIMEOUT_SECONDS = 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def app(database_url: str) -> AgentHarness:
    harness = AgentHarness(echo, settings=Settings(database=database_url), default="echo")
    harness.add("other", echo)
    return harness


@pytest_asyncio.fixture
async def port(app: AgentHarness) -> AsyncIterator[int]:
    async with serving(app, limits=Limits(caller_cache_seconds=0.0)) as port:
        yield port


class Watching:
    """A client of the stream, from its first frame on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, token: str) -> Watching:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        lines = [
            "GET /api/events/stream HTTP/1.1",
            f"Host: {LOOPBACK}",
            f"Authorization: Bearer {token}",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        watching = cls(reader, writer)
        assert (await watching.next())["type"] == "connected"
        return watching

    async def next(self) -> dict[str, Any]:
        """The next frame; IncompleteReadError where the server has closed the stream."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                line = await self._reader.readuntil(b"\n")
                if line.startswith(b"data: "):
                    frame: dict[str, Any] = json.loads(line[6:])
                    return frame

    async def until(self, kind: str) -> list[dict[str, Any]]:
        frames = [await self.next()]
        while frames[-1]["type"] != kind:
            frames.append(await self.next())
        return frames

    def close(self) -> None:
        self._writer.close()


async def token(app: AgentHarness, name: str, role: Role = "send", **rights: Any) -> str:
    secret, _ = await issue(app.store, "token", Grant(name=name, role=role, **rights), None)
    return secret


async def say(port: int, secret: str, text: str, **fields: str) -> None:
    body = json.dumps({"message": text, "sender": "x"} | fields).encode()
    code, _, answer = await ask(
        port, "/api/message", "POST", body, authorization=f"Bearer {secret}"
    )
    assert code == 200, answer


async def test_two_people_with_role_send_hear_nothing_of_each_other(
    app: AgentHarness, port: int
) -> None:
    ada, bob = await token(app, "ada"), await token(app, "bob")
    streams = {
        name: await Watching.open(port, secret) for name, secret in (("ada", ada), ("bob", bob))
    }
    everything = await Watching.open(port, secret_of(port, "send"))
    frames: list[dict[str, Any]] = []
    for text, secret in (
        ("ada 1", ada),
        ("bob 1", bob),
        ("eve", secret_of(port, "send")),
        ("bob 2", bob),
        ("ada 2", ada),
    ):
        await say(port, secret, text)
        # Answered before the next one comes, so that the order of frames is known.
        frames = await everything.until("response_ready")
    assert {"message_received", "agent_routed", "chain_step_done", "response_ready"} <= {
        one["type"] for one in frames
    }
    for name, stream in streams.items():
        for turn in ("1", "2"):
            frames = await stream.until("response_ready")
            received = [frame for frame in frames if frame["type"] == "message_received"]
            assert [frame["message"] for frame in received] == [f"{name} {turn}"]
            assert len({frame["messageId"] for frame in frames}) == 1
        stream.close()
    everything.close()


async def test_a_bound_reader_hears_of_its_channels_and_agents_alone(
    app: AgentHarness, port: int
) -> None:
    of_web = await Watching.open(port, await token(app, "web", "read", channels=("web",)))
    of_other = await Watching.open(port, await token(app, "other", "read", agents=("other",)))
    admin, everything = (
        secret_of(port, "admin"),
        await Watching.open(port, secret_of(port, "admin")),
    )
    for text, fields in (
        ("neither", {"channel": "crm"}),
        ("web", {"channel": "web"}),
        ("other", {"channel": "crm", "agent": "other"}),
    ):
        await say(port, admin, text, **fields)
        await everything.until("response_ready")
    assert {frame["channel"] for frame in await of_web.until("response_ready")} == {"web"}
    assert {frame["agent"] for frame in await of_other.until("response_ready")} == {"other"}
    for stream in (of_web, of_other, everything):
        stream.close()


async def test_streams_end_without_a_traceback_while_the_database_is_away(
    app: AgentHarness,
    port: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable("the database is away")

    stream = await Watching.open(port, await token(app, "reader", "read"))
    monkeypatch.setattr(Callers, "find", fail)
    await say(port, secret_of(port, "admin"), "unseen")
    with pytest.raises(asyncio.IncompleteReadError):
        await stream.next()
    stream.close()
    assert [record for record in caplog.records if record.exc_info] == []


async def test_the_stream_of_a_revoked_token_ends_before_it_tells_anything_more(
    app: AgentHarness, port: int
) -> None:
    stream = await Watching.open(port, await token(app, "reader", "read"))
    await say(port, secret_of(port, "admin"), "before")
    await stream.until("response_ready")
    assert await revoke_token(app.store, "reader", "test")
    await say(port, secret_of(port, "admin"), "after")
    with pytest.raises(asyncio.IncompleteReadError) as ended:
        await stream.next()
    assert b"after" not in ended.value.partial
    stream.close()
