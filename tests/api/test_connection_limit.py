"""Connections within limits: clients that stall, in any number, keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.api.limits import Limits
from holdfast.api.security.connection_limit import RESERVE, ConnectionLimit
from holdfast.settings import Settings
from holdfast.settings.networks import networks
from tests.api.serving import LOOPBACK, secret_of, serving

ATTACKERS = 1000
ATTACKED_FOR = 7.0


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database=database_url)


async def ask(
    port: int, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, str]:
    """Status and body, on a connection of its own."""

    def send() -> tuple[int, str]:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode()
        connection.close()
        return found

    return await asyncio.to_thread(send)


def bearer(port: int) -> dict[str, str]:
    return {"authorization": f"Bearer {secret_of(port, 'admin')}"}


@asynccontextmanager
async def dripping(port: int, request: bytes, *seconds: float) -> AsyncIterator[None]:
    """Hold 1,000 connections that send the request, then one byte every few seconds."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "tests.api.dripping",
            str(port),
            str(ATTACKERS),
            request.hex(),
            *map(str, seconds),
        ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready\n"
    yield
    process.stdin.close()
    await process.wait()
    # The server has handled all connections that were opened before this one.
    await ask(port, "/healthz")


ATTACKS: dict[str, Callable[[int], bytes]] = {
    "a body after their 401": lambda port: (
        f"POST /api/message HTTP/1.1\r\nhost: {LOOPBACK}:{port}\r\ncontent-length: 1000000\r\n\r\n"
    ).encode(),
    "a body with a token": lambda port: (
        f"POST /api/message HTTP/1.1\r\nhost: {LOOPBACK}:{port}\r\ncontent-length: 1000000\r\n"
        f"authorization: Bearer {secret_of(port, 'send')}\r\n\r\n"
    ).encode(),
    "a head": lambda _: b"GET / HTTP/1.1\r\nx: y",
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_issue_13_6_1000_connections_that_drip_lock_nobody_out(
    settings: Settings, attack: str
) -> None:
    async with (
        serving(AgentHarness(echo, settings=settings)) as port,
        dripping(port, ATTACKS[attack](port)),
    ):
        slowest, until = 0.0, time.monotonic() + ATTACKED_FOR
        for number in itertools.takewhile(lambda _: time.monotonic() < until, itertools.count()):
            for path, method, body in (
                ("/healthz", "GET", None),
                ("/api/message", "POST", json.dumps({"message": f"m{number}"})),
                ("/api/queue/status", "GET", None),
            ):
                began_at = time.monotonic()
                status, answer = await ask(port, path, method, body, **bearer(port))
                slowest = max(slowest, time.monotonic() - began_at)
                assert status == 200, (number, path, answer)
            await asyncio.sleep(0.05)
        assert slowest < 10


async def slowest_health(port: int, count: int) -> float:
    """Ask for both kinds of health, one after the other; returns the longest time in seconds."""
    slowest = 0.0
    for path in ("/healthz", "/readyz") * count:
        began_at = time.monotonic()
        status, answer = await ask(port, path)
        slowest = max(slowest, time.monotonic() - began_at)
        assert status == 200, (path, answer)
        await asyncio.sleep(0.1)
    return slowest


@pytest.mark.sweep(2)
@pytest.mark.parametrize("attack", ["a body after their 401", "a head"])
async def test_health_and_readiness_are_answered_within_2_s_while_1000_strangers_drip(
    settings: Settings, attack: str
) -> None:
    async with serving(AgentHarness(echo, settings=settings)) as port:
        unattacked = await slowest_health(port, 10)
        async with dripping(port, ATTACKS[attack](port), 5.0):
            attacked = await slowest_health(port, 30)
    assert attacked < max(2.0, 10 * unattacked), (
        "10 times as long, where the machine itself is that slow"
    )


async def test_a_body_in_drops_is_refused_long_before_its_time_is_over(
    settings: Settings,
) -> None:
    limits = Limits(body_stall_seconds=0.3)
    async with serving(AgentHarness(echo, settings=settings), limits=limits) as port:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(ATTACKS["a body with a token"](port))
        async with asyncio.timeout(10):
            answer = asyncio.create_task(reader.read())
            while not answer.done():
                writer.write(b"x")
                await asyncio.sleep(0.05)
            assert (await answer).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_connections_beyond_the_limit_are_turned_away_and_health_is_not(
    settings: Settings,
) -> None:
    few = settings.model_copy(update={"api_connections": 3})
    async with serving(AgentHarness(echo, settings=few)) as port:
        async with streams(port, 3):
            for _ in range(RESERVE):
                assert (await ask(port, "/healthz"))[0] == 200
            status, body = await ask(port, "/api/queue/status", **bearer(port))
            assert (status, list(json.loads(body))) == (503, ["error"])
        async with asyncio.timeout(10):
            path = "/api/queue/status"
            while (await ask(port, path, **bearer(port)))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@asynccontextmanager
async def streams(port: int, count: int) -> AsyncIterator[None]:
    """So many clients that are served all the time."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            stack.callback(writer.close)
            lines = [
                "GET /api/events/stream HTTP/1.1",
                f"host: {LOOPBACK}",
                *map(": ".join, bearer(port).items()),
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
        yield


async def test_one_address_has_a_limit_of_its_own(settings: Settings) -> None:
    few = settings.model_copy(update={"api_client_connections": 2})
    async with serving(AgentHarness(echo, settings=few)) as port, streams(port, 2):
        assert (await ask(port, "/healthz"))[0] == 503


class Client:
    """A connection that only notes its end."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        self.address = address
        self.is_evicted = False

    def evict(self) -> None:
        self.is_evicted = True


def admit(limit: ConnectionLimit, member: Client) -> bool:
    return limit.arrive(member) and limit.admit(member)


def test_a_full_crowd_ends_who_waits_longest_and_strangers_first() -> None:
    limit = ConnectionLimit(most=3, most_per_client=10)
    known, first, second = Client(), Client(), Client()
    for member in (known, first, second):
        assert admit(limit, member)
        limit.waits(member, is_known=member is known)
    limit.waits(first, is_known=False)
    assert admit(limit, Client())
    assert (first.is_evicted, second.is_evicted, known.is_evicted) == (True, False, False)
    limit.works(second)
    assert admit(limit, Client())
    assert known.is_evicted


def test_beyond_the_limit_there_is_a_reserve_for_some_paths_alone() -> None:
    limit = ConnectionLimit(most=1, most_per_client=1000, reserved_paths=frozenset({"/healthz"}))
    member, *reserve = (Client() for _ in range(1 + RESERVE))
    assert all(admit(limit, one) for one in (member, *reserve))
    assert limit.may_ask(reserve[0], "/healthz")
    assert not limit.may_ask(reserve[0], "/api/agents")
    assert not admit(limit, Client())
    limit.leave(reserve[2])
    limit.leave(reserve[2])
    assert admit(limit, Client())
    limit.leave(member)
    assert limit.may_ask(reserve[0], "/api/agents"), "there is room now"


def test_a_waiting_connection_of_the_reserve_makes_room_for_the_next() -> None:
    limit = ConnectionLimit(most=1, most_per_client=1000)
    _, silent, *_ = members = [Client() for _ in range(1 + RESERVE)]
    assert all(admit(limit, one) for one in members)
    limit.waits(silent, is_known=False)
    assert admit(limit, Client())
    assert silent.is_evicted


def test_there_are_never_more_sockets_than_files_for_them() -> None:
    limit = ConnectionLimit(most=10, most_per_client=1000)
    arrivals = [Client() for _ in range(limit.most_sockets)]
    assert all(limit.arrive(one) for one in arrivals)
    assert not limit.arrive(Client())
    limit.leave(arrivals[0])
    assert limit.arrive(Client())


def test_an_address_at_its_limit_makes_room_among_its_own_and_proxies_have_none() -> None:
    limit = ConnectionLimit(most=100, most_per_client=2, proxies=networks("198.51.100.0/24"))
    other, own = Client("192.0.2.2"), Client()
    for member in (other, own):
        admit(limit, member)
        limit.waits(member, is_known=False)
    assert all(admit(limit, Client()) for _ in range(2))
    assert (own.is_evicted, other.is_evicted) == (True, False)
    assert not admit(limit, Client())
    assert all(admit(limit, Client("198.51.100.7")) for _ in range(10))


def test_a_crowd_that_has_left_leaves_nothing_behind() -> None:
    limit = ConnectionLimit(most=10, most_per_client=10)
    for number in range(1000):
        member = Client(f"192.0.2.{number % 250}")
        admit(limit, member)
        limit.waits(member, is_known=bool(number % 2))
        limit.leave(member)
    assert not any(
        (
            limit._slots,
            limit._of_client,
            limit._strangers,
            limit._known,
        )
    )
