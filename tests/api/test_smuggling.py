"""No request hides behind another: whatever is refused unread ends its connection."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.api.framing import LONGEST_HEAD, MOST_CHUNKS
from holdfast.settings import Settings
from tests.api.serving import LOOPBACK, ask_json, secret_of, serving

HIDDEN = b'{"channel": "hidden", "sender": "x", "message": "I ran"}'


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest_asyncio.fixture
async def port(database_url: str) -> AsyncIterator[int]:
    async with serving(AgentHarness(echo, settings=Settings(database=database_url))) as port:
        yield port


def request(port: int, *headers: str, method: str = "POST", path: str = "/api/responses") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"host: {LOOPBACK}:{port}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def token(port: int) -> str:
    return f"authorization: Bearer {secret_of(port, 'admin')}"


def hidden(port: int) -> bytes:
    """A whole request that stores a response."""
    return request(port, token(port), f"content-length: {len(HIDDEN)}") + HIDDEN


async def answers(port: int, *parts: bytes) -> bytes:
    """Everything that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        async with asyncio.timeout(10):
            for part in parts:
                writer.write(part)
                await writer.drain()
            return await reader.read()
    finally:
        writer.close()


async def refused(port: int, status: int, *parts: bytes) -> None:
    """Expect one answer of this status, a closed connection and no trace of the hidden request."""
    received = await answers(port, *parts)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), received
    assert b"connection: close" in head.lower()
    assert list(json.loads(body)) == ["error"], received
    assert received.count(b"HTTP/1.1 ") == 1, "one answer alone"
    assert await ask_json(port, "/api/responses/pending?channel=hidden") == (200, [])


async def test_issue_13_12_length_and_chunked_are_refused_and_the_hidden_request_does_not_run(
    port: int,
) -> None:
    both = ("content-length: 5", "transfer-encoding: chunked")
    for headers in (both, both[::-1]):
        await refused(port, 400, request(port, token(port), *headers) + b"0\r\n\r\n" + hidden(port))


@pytest.mark.parametrize(
    ("status", "headers", "path"),
    [
        (401, (), "/api/responses"),
        (401, ("authorization: Bearer wrong",), "/api/responses"),
        (403, ("origin: http://evil.example",), "/api/responses"),
        (404, (), "/nothing"),
        (405, (), "/healthz"),
        (404, ("TOKEN",), "/api/responses/0/ack"),
        (413, ("TOKEN",), "/api/message"),
    ],
)
async def test_every_refused_body_closes_the_connection(
    port: int, status: int, headers: tuple[str, ...], path: str
) -> None:
    length = 10**9 if status == 413 else 10_000
    given = [token(port) if header == "TOKEN" else header for header in headers]
    await refused(
        port, status, request(port, f"content-length: {length}", *given, path=path), hidden(port)
    )


async def test_a_foreign_host_with_a_body_closes_the_connection(port: int) -> None:
    await refused(
        port, 421, b"POST / HTTP/1.1\r\nhost: evil\r\ncontent-length: 9999\r\n\r\n", hidden(port)
    )


async def test_a_chunked_body_that_grows_too_large_closes_the_connection(port: int) -> None:
    chunk = b"%x\r\n%s\r\n" % (65536, b"x" * 65536)
    chunks = [*[chunk] * 17, b"0\r\n\r\n"]
    await refused(
        port, 413, request(port, token(port), "transfer-encoding: chunked"), *chunks, hidden(port)
    )


async def test_too_many_requests_with_a_body_close_the_connection(database_url: str) -> None:
    app = AgentHarness(echo, settings=Settings(database=database_url, api_rate=1))
    async with serving(app) as port:
        late = request(port, "content-length: 9999")
        received = [await answers(port, late) for _ in range(3)]
        assert {one[9:12] for one in received} == {b"401", b"429"}
        assert all(b"connection: close" in one for one in received)


async def test_a_refusal_with_its_body_read_whole_keeps_the_connection(port: int) -> None:
    """Closing is for what was not read, not for every mistake."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    for _ in range(2):
        writer.write(request(port, token(port), "content-length: 2") + b"{}")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 400")
        assert b"connection: close" not in head.lower()
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
    writer.close()


@pytest.mark.parametrize(
    "head",
    [
        "GET /healthz HTTP/1.1\nhost: {host}\n\n",
        "GET /healthz HTTP/1.1\r\nhost: {host}\nx: y\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: {host}\r\n\n",
        "GET /healthz HTTP/1.1\r\nhost: {host}\n\r\n",
        "GET /healthz HTTP/1.1\nhost: {host}\r\n\r\n",
        "\nGET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: {host}\r\nx: a\rb: c\r\n\r\n",
    ],
)
async def test_bare_line_endings_are_refused(port: int, head: str) -> None:
    await refused(port, 400, head.format(host=LOOPBACK).encode() + hidden(port))


@pytest.mark.parametrize("fold", [" ", "\t", " transfer-encoding: chunked", "\tx"])
async def test_folded_headers_are_refused(port: int, fold: str) -> None:
    for split in (False, True):
        sent = request(port, token(port), "x: y", fold, "content-length: 2") + b"{}" + hidden(port)
        middle = sent.index(b"x: y") + 6
        await refused(port, 400, *((sent[:middle], sent[middle:]) if split else (sent,)))


@pytest.mark.parametrize(
    "lengths",
    [
        ("2", "2"),
        ("2, 2",),
        ("+2",),
        ("-2",),
        ("0x2",),
        ("2 2",),
        ("",),
        ("2_0",),
        ("²",),
        ("1" * 30,),
        ("1" * 5000,),
    ],
)
async def test_odd_or_repeated_lengths_are_refused(port: int, lengths: tuple[str, ...]) -> None:
    headers = [f"Content-Length: {length}" for length in lengths]
    await refused(port, 400, request(port, token(port), *headers) + b"{}" + hidden(port))


async def test_a_length_that_is_too_large_is_refused_with_whitespace_around_it_too(
    port: int,
) -> None:
    late = request(port, "content-length: \t1000000000 \t", method="GET", path="/healthz")
    await refused(port, 413, late, hidden(port))


async def test_a_client_of_http_1_0_gets_the_response_alone(port: int) -> None:
    headers = (token(port), "expect: 100-continue", "content-length: 2")
    head = request(port, *headers).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    assert (await answers(port, head, b"{}")).startswith(b"HTTP/1.1 400")


async def test_chunks_in_http_1_0_are_refused(port: int) -> None:
    head = request(port, token(port), "transfer-encoding: chunked").replace(
        b"HTTP/1.1", b"HTTP/1.0", 1
    )
    await refused(port, 400, head + b"0\r\n\r\n" + hidden(port))


@pytest.mark.parametrize(
    "body",
    [
        b"2;a=b\r\n{}\r\n0\r\n\r\n",
        b"2 \r\n{}\r\n0\r\n\r\n",
        b"2\n{}\r\n0\r\n\r\n",
        b"2\r\n{}\n0\r\n\r\n",
        b"2\r\n{}0\r\n\r\n",
        b"2\r\n{}\r\n0\n\n",
        b"2\r\n{}\r\n0\r\n\n",
        b"2\r\n{}\r\n0;x\r\n\r\n",
        b"2\r\n{}\r\n0\r\nx: y\r\n\r\n",
        b"2\r\n{}\r\n-0\r\n\r\n",
        b"000000000002\r\n{}\r\n0\r\n\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"2;" + b"x" * 20_000,
    ],
)
async def test_chunks_that_others_could_read_otherwise_are_refused(port: int, body: bytes) -> None:
    head = request(port, token(port), "transfer-encoding: chunked")
    await refused(port, 400, head + body + hidden(port))
    await refused(
        port,
        400,
        head,
        *[body[at : at + 1] for at in range(min(len(body), 30))],
        body[30:],
        hidden(port),
    )


async def test_a_body_in_too_many_chunks_is_refused(port: int) -> None:
    head = request(port, token(port), "transfer-encoding: chunked")
    await refused(port, 400, head + b"1\r\n \r\n" * (MOST_CHUNKS + 1) + b"0\r\n\r\n" + hidden(port))


async def test_plain_chunks_are_taken_however_they_are_cut(port: int) -> None:
    body = b'{"channel": "plain", "sender": "x", "message": "hello"}'
    chunks = b"".join(
        b"%X\r\n%b\r\n" % (len(part), part) for part in (body[:1], body[1:17], body[17:])
    )
    sent = request(port, token(port), "transfer-encoding: chunked") + chunks + b"0\r\n\r\n"
    for size in (1, 2, 3, 7, len(sent)):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        for at in range(0, len(sent), size):
            writer.write(sent[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
        writer.close()
    _, found = await ask_json(port, "/api/responses/pending?channel=plain")
    assert len(found) == 5


async def test_two_whole_requests_in_a_row_are_both_answered(port: int) -> None:
    twice = hidden(port) * 2 + request(port, "connection: close", method="GET", path="/healthz")
    assert (await answers(port, twice)).count(b"HTTP/1.1 200") == 3


async def test_a_bad_request_after_a_good_one_is_refused_with_an_answer(port: int) -> None:
    good = request(port, method="GET", path="/healthz")
    received = await answers(port, good + b"GET /healthz HTTP/1.1\nhost: x\n\n")
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


@pytest.mark.parametrize(
    "head",
    [
        "GET /healthz HTTP/1.1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: {host}\r\nhost: {host}\r\n\r\n",
        "GET /healthz HTTP/2.0\r\nhost: {host}\r\n\r\n",
        "CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "CONNECT /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET http://evil.example/healthz HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET ftp://{host}/healthz HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET /healthz#/api HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET /healthz?#a HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET  /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET /healthz  HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET /healthz?\x1b HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET /hä HTTP/1.1\r\nhost: {host}\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: {host}\r\nx: \x00\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: {host}\r\nupgrade: \x00\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: {host}\r\nx : y\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: {host}\r\nx: " + "y" * LONGEST_HEAD,
    ],
)
async def test_requests_that_are_not_plain_http_1_1_are_refused(port: int, head: str) -> None:
    await refused(port, 400, head.format(host=LOOPBACK).encode() + hidden(port))


async def test_a_client_that_offers_another_protocol_is_answered_by_http_1_1(port: int) -> None:
    offer = ("connection: upgrade, http2-settings", "Upgrade: h2c", "content-length: 2")
    offered = request(port, token(port), *offer) + b"{}"
    last = request(port, "connection: close", method="GET", path="/healthz")
    received = await answers(port, offered + last)
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"400", b"200"]


async def test_the_answer_to_head_leaves_the_connection_usable(port: int) -> None:
    head = request(port, method="HEAD", path="/healthz")
    last = request(port, "connection: close", method="GET", path="/healthz")
    received = await answers(port, head, last)
    assert received.count(b"HTTP/1.1 ") == 2


async def test_a_refused_client_that_has_left_is_no_error_of_ours(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    both = ("content-length: 5", "transfer-encoding: chunked")
    # Gone before the server, which runs on this loop, can read a byte.
    with socket.create_connection((LOOPBACK, port)) as client:
        client.sendall(request(port, token(port), *both))
    await ask_json(port, "/healthz")
    assert "Fatal error" not in caplog.text
