"""Large lists: pages limited by bytes, memory that does not grow with them, and slow readers."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.api.limits import Limits
from holdfast.queue.event import OUTBOX, NewEvent
from holdfast.queue.pages import PAGE_BYTES
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.telemetry import CLIENT_TOO_SLOW, LOOP_IS_BLOCKED
from tests.api.serving import LOOPBACK, serving, token_of
from tests.cli.shell import Running, Shell

MEGABYTE = 1_000_000
MESSAGES = 150
MEMORY = 200 * 1024
"""KiB by which the server may grow; 1.76 GiB was measured before pages ended at bytes."""


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def fill(database_url: str, count: int) -> None:
    async with open_store(database_url) as store:
        for number in range(count):
            payload = {
                "kind": "response",
                "channel": "c",
                "sender": "s",
                "message": "x" * MEGABYTE,
                "number": number,
            }
            await store.put([NewEvent(event=payload, queue=OUTBOX, target="c")])


def get(port: int, path: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body. Parsing it here would delay other threads of the test."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = (
        answer.status,
        {name.lower(): value for name, value in answer.getheaders()},
        answer.read(),
    )
    connection.close()
    return found


def health_seconds(port: int) -> float:
    began_at = time.monotonic()
    assert get(port, "/healthz")[0] == 200
    return time.monotonic() - began_at


def peak_memory(process: int) -> int:
    """KiB at its most so far."""
    found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[tuple[Running, int]]:
    asyncio.run(fill(database_url, MESSAGES))
    with Shell(tmp_path, database_url).running("serve", "--port", "0", "--no-auth") as running:
        yield running, urlsplit(running.address).port or 0


def test_issue_13_7_150_messages_of_a_megabyte_are_listed_while_health_is_answered(
    server: tuple[Running, int],
) -> None:
    running, port = server
    assert get(port, "/api/responses?limit=1")[0] == 200
    before, log = peak_memory(running.process.pid), running.log
    idle = max(health_seconds(port) for _ in range(20))

    async def ask() -> tuple[list[tuple[int, dict[str, str], bytes]], float]:
        asking = [asyncio.to_thread(get, port, "/api/responses?limit=1000") for _ in range(3)]
        task = asyncio.gather(*asking)
        slowest = 0.0
        while not task.done():
            slowest = max(slowest, await asyncio.to_thread(health_seconds, port))
        return await task, slowest

    answers, slowest = asyncio.run(ask())
    for status, headers, body in answers:
        rows = json.loads(body)
        assert (status, len(rows)) == (200, -(-PAGE_BYTES // MEGABYTE))
        assert headers["x-next-before-id"] == str(rows[-1]["id"])
    assert LOOP_IS_BLOCKED not in running.log[len(log) :], "no callback blocks for 200 ms"
    assert slowest < max(0.2, 10 * idle), "200 ms, or 10 times as long as on this machine when idle"
    assert peak_memory(running.process.pid) - before < MEMORY


@pytest.mark.parametrize(
    ("path", "cursor"),
    [("/api/responses?limit=1000", "before"), ("/api/responses/pending?channel=c", "since")],
)
async def test_the_next_page_is_where_the_headers_say(
    database_url: str, path: str, cursor: str
) -> None:
    await fill(database_url, 12)
    async with serving(AgentHarness(echo, settings=Settings(database=database_url))) as port:
        following: str | None = path
        found: list[int] = []
        while following is not None:
            connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
            rows, headers = await asyncio.to_thread(
                _page, connection, following, token_of(port, "admin")
            )
            found += [row["id"] for row in rows]
            link = headers.get("link")
            following = None if link is None else link.partition(">")[0][1:]
            assert (link is None) == (f"x-next-{cursor}-id" not in headers)
        assert sorted(found, reverse=cursor == "before") == found
        assert len(set(found)) == len(found) == 12


def _page(
    connection: http.client.HTTPConnection, path: str, headers: dict[str, str]
) -> tuple[Any, dict[str, str]]:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    found = json.loads(answer.read()), {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return found


@pytest.mark.parametrize(
    ("path", "whole"), [("/api/responses?limit=1000", 5), ("/api/events/stream", 12)]
)
async def test_a_reader_that_takes_nothing_is_dropped(
    database_url: str,
    path: str,
    whole: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    app = AgentHarness(echo, settings=Settings(database=database_url))
    async with serving(app, limits=Limits(read_seconds=0.5)) as port:
        await fill(database_url, 12)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((LOOPBACK, port))
            [(name, value)] = token_of(port, "admin").items()
            client.sendall(
                f"GET {path} HTTP/1.1\r\nhost: {LOOPBACK}\r\n{name}: {value}\r\n\r\n".encode()
            )
            await asyncio.sleep(0.5)
            if path.endswith("stream"):
                for _ in range(whole):
                    await app.put("y" * MEGABYTE)
            async with asyncio.timeout(60):
                while CLIENT_TOO_SLOW not in caplog.text:  # noqa: ASYNC110 - its log
                    await asyncio.sleep(0.05)
            assert await asyncio.to_thread(rest, client) < whole * MEGABYTE


def rest(client: socket.socket) -> int:
    """Bytes that can still be read."""
    client.settimeout(10)
    count = 0
    try:
        while data := client.recv(65536):
            count += len(data)
    except ConnectionResetError:
        pass
    return count
