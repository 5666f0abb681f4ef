"""Send hostile inputs of five kinds to one `holdfast up`, and report what went wrong."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psycopg
from psycopg import sql
from yarl import URL

from holdfast.api.security.bootstrap_tokens import bootstrap_tokens
from holdfast.testing.slack import FakeSlack
from holdfast.testing.slack.sockets import sign
from holdfast.testing.slack.workspace import GENERAL
from tests.api.hostile_app import SEED
from tests.api.inputs import Inputs, Row
from tests.cli.shell import Running, Shell
from tests.process.test_unreadable import ROUTES as LISTS

AT_ONCE = 16
REPLIES_AT_ONCE = 100
TIMEOUT_SECONDS = 120.0
SHARES = (
    ("http", 0.4),
    ("slack", 0.15),
    ("replies", 0.05),
    ("rows", 0.05),
    ("sockets", 0.15),
    ("http again", 0.2),
)
"""Kinds in their order, and their shares; HTTP comes once more to read what the others left."""
BLOCKED = re.compile(r'^holdfast_loop_blocked_total\{where="(.*)"\} (\d+)', re.M)
STATUS = re.compile(rb"^HTTP/1\.[01] (\d{3}) ", re.M)
LIVE = (
    "select count(*) from {event} where queue = 'inbox' or queue = 'outbox' and target = 'slack'",
    "select id, queue, target, lane, attempts from {event}"
    " where queue = 'inbox' or target = 'slack' limit 5",
)
ROUTES = (
    *LISTS,
    "/api/agents",
    "/api/teams",
    "/api/audit",
    "/api/chatroom/dev",
    "/api/agents/echo/messages",
)
SETTINGS = {
    # Failed turns end soon, so that everything ends within the test's time limit.
    "HOLDFAST_RETRY_FIRST": "10ms",
    "HOLDFAST_RETRY_MOST": "50ms",
    "HOLDFAST_GRACE": "1s",
    "HOLDFAST_API_RATE": "100000",
    "HOLDFAST_LOG_LEVEL": "warning",
    "HOLDFAST_WORKERS": "20",
}


class Fuzz:
    """One server under fire. `faults` lists each answer that should not have been."""

    def __init__(
        self, seed: str, running: Running, slack: FakeSlack, database: str, home: Path
    ) -> None:
        self.seed = seed
        self.running = running
        self.slack = slack
        self.database = database
        self.faults: list[str] = []
        self.answers: Counter[str] = Counter()
        self.blocks: Counter[str] = Counter()
        self.port = int(urlsplit(running.address).port or 0)
        self.tokens = bootstrap_tokens(home)
        self.admin = self.tokens["admin"]
        self.operations = [("GET", "/"), ("GET", "/static/chat/page.js"), ("POST", "/slack/events")]

    async def run(self, count: int) -> None:
        """Send so many inputs in all."""
        kinds = {
            "http": self.http,
            "http again": self.http,
            "slack": self.slack_body,
            "sockets": self.socket,
        }
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as self.session:
            paths = (await self.ask("/openapi.json"))["paths"]
            self.operations += [(method.upper(), path) for path in paths for method in paths[path]]
            await self.slack.until(lambda: self.slack.faults.calls["auth.test"])
            await self.is_well()
            # Imports at the start block the loop, too; do not count them.
            self.blocked_before = await self.all_blocks()
            for kind, share in SHARES:
                started, inputs = time.monotonic(), range(max(1, round(count * share)))
                if kind == "replies":
                    await self.replies(inputs)
                elif kind == "rows":
                    await asyncio.to_thread(self.rows, inputs)
                else:
                    await self.all_of(kind, kinds[kind], inputs)
                rate = len(inputs) / (time.monotonic() - started)
                print(f"{kind}: {len(inputs)} inputs, {rate:.0f} per second", flush=True)
                assert self.running.process.poll() is None, (
                    f"the process ended: {self.running.log[-3000:]}"
                )
                assert not self.faults, (
                    f"seed {self.seed}: {len(self.faults)} faults: {self.faults[:5]}"
                )
            await self.is_well()
            self.blocks = await self.all_blocks() - self.blocked_before

    async def all_of(
        self, kind: str, send: Callable[[Inputs], Awaitable[str]], inputs: range
    ) -> None:
        """Send the inputs of a kind, some at once."""
        numbers = iter(inputs)

        async def send_some() -> None:
            for number in numbers:
                answer = await send(Inputs(self.seed, kind, number))
                self.answers[f"{kind} {answer}"] += 1
                if answer.startswith("5"):
                    self.faults.append(f"{kind} {number}: {answer}")

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(send_some())

    def last_words(self) -> str:
        """How a process ended that has stopped listening."""
        return f"exit {self.running.end()}: {self.running.log[-3000:]}"

    async def http(self, made: Inputs) -> str:
        request = made.request(self.operations, self.tokens)
        return await self._send(request.method, request.target, request.headers, request.body)

    async def slack_body(self, made: Inputs) -> str:
        body = made.slack_body()
        how = made.chance.randrange(10)
        headers = sign("other secret" if how == 0 else self.slack.signing_secret, body)
        if how == 1:
            headers["x-slack-request-timestamp"] = str(made.number())
        return await self._send("POST", "/slack/events", {} if how == 2 else headers, body)

    async def _send(self, method: str, target: str, headers: dict[str, str], body: bytes) -> str:
        url = URL(f"http://127.0.0.1:{self.port}{target}", encoded=True)
        try:
            async with self.session.request(
                method, url, headers=headers, data=BytesIO(body), allow_redirects=False
            ) as answer:
                if answer.content_type == "text/event-stream":
                    answer.close()
                else:
                    await answer.read()
                return str(answer.status)
        except aiohttp.ClientConnectorError:
            return f"5xx: nobody listens; {await asyncio.to_thread(self.last_words)}"
        except TimeoutError:
            return f"5xx: no answer within a minute to {method} {target[:100]}"
        except aiohttp.ClientError as error:
            # The server may refuse a body unread and close.
            return type(error).__name__

    async def socket(self, made: Inputs) -> str:
        """Send raw bytes, end our side, and read all answers; or go away without reading."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionRefusedError:
            return f"5xx: nobody listens; {await asyncio.to_thread(self.last_words)}"
        received = b""
        try:
            async with asyncio.timeout(5):
                writer.write(made.raw(self.port, self.admin))
                await writer.drain()
                if made.chance.random() < 0.2:
                    return "left"
                writer.write_eof()
                received = await reader.read(200_000)
        except (OSError, TimeoutError) as error:
            return type(error).__name__
        finally:
            writer.close()
        return max((status.decode() for status in STATUS.findall(received)), default="closed")

    async def replies(self, inputs: range) -> None:
        """Let the agent answer with hostile texts in Slack; every message must come to its end."""
        self.slack.sockets.request_url = f"http://127.0.0.1:{self.port}/slack/events"
        for first in inputs[::REPLIES_AT_ONCE]:
            for number in inputs[first : first + REPLIES_AT_ONCE]:
                await self.slack.mention(str(number))
            await self.slack.until(self.all_acked, TIMEOUT_SECONDS)
            await self.everything_ends()
            self.answers["replies posted"] = self.slack.faults.calls["chat.postMessage"]
            self.slack.workspace.rooms[GENERAL].messages.clear()

    def all_acked(self) -> bool:
        return len(self.slack.sockets.acked) == len(self.slack.sockets.sent)

    async def everything_ends(self) -> None:
        """Wait until no message is left, and no response that Slack should have."""
        give_up_at = time.monotonic() + TIMEOUT_SECONDS
        while (left := await asyncio.to_thread(self.select, LIVE[0]))[0][0]:
            shown = await asyncio.to_thread(self.select, LIVE[1])
            assert time.monotonic() < give_up_at, f"seed {self.seed}: {left} messages hang: {shown}"
            await asyncio.sleep(0.05)

    def select(self, query: str) -> list[tuple[Any, ...]]:
        with connected(self.database) as shell:
            return list(
                shell.execute(query.format(event=table_of(self.database, "event"))).fetchall()
            )

    def rows(self, inputs: range) -> None:
        """Insert rows by hand; a refused one is no fault."""
        with connected(self.database) as shell:
            for number in inputs:
                row = Inputs(self.seed, "rows", number).row()
                taken = insert(shell, table_of(self.database, row.table), row)
                self.answers[f"rows {'taken' if taken else 'refused'}"] += 1

    async def is_well(self) -> None:
        """Check that lists can be read, and that a normal message is answered."""
        for route in ROUTES:
            await self.ask(route)
        given = {"channel": "check", "sender": "Ada", "message": "are you well?", "agent": "echo"}
        headers = {"authorization": f"Bearer {self.admin}", "content-type": "application/json"}
        assert (
            await self._send("POST", "/api/message", headers, json.dumps(given).encode()) == "200"
        )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            path = "/api/responses/pending?channel=check"
            while not (found := await self.ask(path)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert "are you well?" in found[0]["message"]
        assert (
            await self._send("POST", f"/api/responses/{found[0]['id']}/ack", headers, b"") == "200"
        )

    async def ask(self, path: str) -> Any:
        headers = {"authorization": f"Bearer {self.admin}"}
        async with self.session.get(f"{self.running.address}{path}", headers=headers) as answer:
            assert answer.status == 200, (path, answer.status)
            return (
                await answer.json()
                if answer.content_type == "application/json"
                else await answer.text()
            )

    async def all_blocks(self) -> Counter[str]:
        """Count, by function, the blocks of the event loop that exceeded the limit."""
        return Counter(
            {where: int(times) for where, times in BLOCKED.findall(await self.ask("/metrics"))}
        )


@contextmanager
def connected(database: str) -> Iterator[Any]:
    """A shell at the database."""
    if database.startswith("sqlite"):
        path = urlsplit(database).path
        with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as shell:
            yield shell
    else:
        with psycopg.connect(database, autocommit=True) as psql:
            yield psql


def table_of(database: str, name: str) -> str:
    return name if database.startswith("sqlite") else f"agent.{name}"


def insert(shell: Any, table: str, row: Row) -> bool:
    """Insert the row. Returns whether the database took it."""
    names, marks = ", ".join(row.values), ["?"] * len(row.values)
    query: Any = f"insert into {table} ({names}) values ({', '.join(marks)})"
    if isinstance(shell, sqlite3.Connection):
        shell.execute(f"pragma ignore_check_constraints = {'off' if row.is_checked else 'on'}")
    else:
        query = sql.SQL(query.replace("?", "%s"))
    try:
        shell.execute(query, list(row.values.values()))
    except (sqlite3.Error, psycopg.Error, UnicodeError, OverflowError):
        return False
    return True


@asynccontextmanager
async def fuzzed(seed: str, folder: Path, database: str) -> AsyncIterator[Fuzz]:
    """Start a server with a Slack of its own."""
    shell = Shell(folder, database)
    async with FakeSlack() as slack:
        slack.sockets.ack_within = 30.0
        variables = SETTINGS | {
            SEED: seed,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_SIGNING_SECRET": slack.signing_secret,
            "SLACK_API_URL": slack.api_url,
        }
        arguments = ("up", "--port", "0", "--app", "tests.api.hostile_app:app")
        with shell.running(*arguments, **variables) as running:
            ready = await asyncio.to_thread(lambda: running.ready)
            assert ready, running.log
            yield Fuzz(seed, running, slack, database, folder / ".holdfast")
