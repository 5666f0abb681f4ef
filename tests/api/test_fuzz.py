"""Hostile requests get a 4xx in JSON, store nothing, and do not disturb the server."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.settings import Settings
from tests.api.serving import LOOPBACK, ask_json, secret_of, serving

MEBIBYTE = 1024 * 1024
BODIES = {
    "nothing": b"",
    "no JSON": b"hello",
    "no object": b'["message"]',
    "a text": b'"message"',
    "null": b"null",
    "half": b'{"message": "hel',
    "twice": b'{"message": "a"}{"message": "b"}',
    "duplicate keys": b'{"message": "a", "message": "b"}',
    "nested duplicate keys": b'{"message": "a", "x": {"y": 1, "y": 2}}',
    "NUL": b'{"message": "a\\u0000b"}',
    "raw NUL": b'{"message": "a\x00b"}',
    "NUL in a key": b'{"message": "a", "\\u0000": 1}',
    "invalid UTF-8": b'{"message": "\xff\xfe"}',
    "UTF-16": '{"message": "hello"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"message": "hello"}',
    "half a surrogate pair": b'{"message": "\\ud800"}',
    "deep lists": b'{"message": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"message": "a", "x": ' + b'{"y":' * 500 + b"1" + b"}" * 500 + b"}",
    "deep enough": b'{"message": "a", "x": ' + b"[" * 60 + b"]" * 60 + b"}",
    "NaN": b'{"message": "a", "x": NaN}',
    "infinity": b'{"message": "a", "x": 1e999}',
    "a number without end": b'{"message": "a", "x": ' + b"9" * 5000 + b"}",
    "a number": b'{"message": 1}',
    "an object": b'{"message": {"message": "a"}}',
    "a form": b"message=hello",
}


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest_asyncio.fixture
async def port(database_url: str) -> AsyncIterator[int]:
    async with serving(AgentHarness(echo, settings=Settings(database=database_url))) as port:
        yield port
        _, status = await ask_json(port, "/api/queue/status")
        assert (status["pending"], status["processing"], status["completed"]) == (0, 0, 0), (
            "nothing was stored"
        )


def head(port: int, path: str = "/api/message", *headers: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {LOOPBACK}:{port}",
        f"authorization: Bearer {secret_of(port, 'admin')}",
    ]
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1")


async def say(port: int, *parts: bytes) -> tuple[int, bytes]:
    """Send bytes. Returns status and body of the answer; status 0 if the server closed instead."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        async with asyncio.timeout(30):
            for part in parts:
                writer.write(part)
                await writer.drain()
            first = await reader.readline()
            length = 0
            while (line := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            return int(first.split()[1]) if first else 0, await reader.readexactly(length)
    except ConnectionError:
        return 0, b""
    finally:
        writer.close()


@pytest.mark.parametrize("path", ["/api/message", "/api/responses", "/api/chatroom/x"])
async def test_a_body_that_is_not_as_it_should_be_is_a_400_that_says_why(
    port: int, path: str
) -> None:
    for name, body in BODIES.items():
        status, answer = await say(port, head(port, path, f"content-length: {len(body)}"), body)
        assert (status, list(json.loads(answer))) == (400, ["error"]), name
        assert len(answer) < 500, "what was sent is not sent back"


@pytest.mark.parametrize("body", [b"[]", b"null", b"5", b'"message"'])
async def test_a_body_that_is_no_object_is_refused_in_plain_words(port: int, body: bytes) -> None:
    status, answer = await say(
        port, head(port, "/api/message", f"content-length: {len(body)}"), body
    )
    assert (status, json.loads(answer)) == (400, {"error": "the body is not a JSON object"})


@pytest.mark.parametrize("depth", [0, 30])
async def test_what_is_only_unusual_is_taken(port: int, depth: int) -> None:
    nested = '{"a":' * depth + "{}" + "}" * depth
    texts = '"channel": "c", "sender": "\\\\u0000 é", "message": "\\u00e9\\ud83d\\ude00"'
    body = f'{{{texts}, "metadata": {nested}}}'
    status, answer = await say(
        port, head(port, "/api/responses", f"content-length: {len(body.encode())}"), body.encode()
    )
    assert status == 200, answer
    [found] = (await ask_json(port, "/api/responses/pending?channel=c"))[1]
    assert (found["message"], found["sender"]) == ("é😀", "\\u0000 é")


async def test_a_body_over_a_mebibyte_is_a_413(port: int) -> None:
    body = json.dumps({"message": "x" * MEBIBYTE}).encode()
    status, answer = await say(
        port, head(port, "/api/message", f"content-length: {len(body)}"), body
    )
    assert (status, list(json.loads(answer))) == (413, ["error"])
    status, _ = await say(port, head(port, "/api/message", f"content-length: {10**15}"))
    assert status == 413


async def test_a_body_over_a_mebibyte_in_chunks_without_a_length_is_a_413(port: int) -> None:
    chunk = b"%x\r\n%s\r\n" % (65536, b"x" * 65536)
    status, answer = await say(
        port, head(port, "/api/message", "transfer-encoding: chunked"), *[chunk] * 20
    )
    assert (status, list(json.loads(answer))) == (413, ["error"])


async def test_a_body_of_almost_a_mebibyte_is_taken(port: int) -> None:
    text = "x" * (MEBIBYTE - 200)
    body = json.dumps({"channel": "c", "sender": "Ada", "message": text}).encode()
    assert (await say(port, head(port, "/api/responses", f"content-length: {len(body)}"), body))[
        0
    ] == 200


@pytest.mark.parametrize(
    "header",
    [
        "content-length: -1",
        "content-length: x",
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: gzip",
        "x: " + "y" * 100_000,
        "x\x00y: z",
        "no colon",
        ": empty",
        "host: 127.0.0.1",
    ],
)
async def test_headers_that_make_no_sense_are_refused(port: int, header: str) -> None:
    status, answer = await say(port, head(port, "/api/message", header), b"{}")
    assert 400 <= status < 500 or status == 0
    assert status == 0 or list(json.loads(answer)) == ["error"]


async def test_random_bytes_never_break_the_server(port: int) -> None:
    chance = random.Random(5)
    for _ in range(50):
        garbage = chance.randbytes(chance.randrange(1, 300))
        for sent in (
            garbage + b"\r\n\r\n",
            head(port) + garbage,
            head(port, "/api/message?\xff")[:-2] + garbage,
        ):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.write(sent)
            writer.write_eof()
            answer = await reader.read()
            assert answer == b"" or (b" 4" in answer[:14] and b'{"error":' in answer), answer
            writer.close()
    assert (await ask_json(port, "/healthz"))[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../tokens.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/..%2fapp.py",
        "/../x",
    ],
)
async def test_no_path_leads_to_a_file_that_is_no_page(port: int, path: str) -> None:
    assert await ask_json(port, path) == (404, {"error": "Not found"})


async def test_unknown_paths_and_wrong_methods_have_their_own_answers(port: int) -> None:
    for path in ("/nothing", "/api", "/api/message/", "/api/queue/dead/1/x", "/docs/x"):
        assert await ask_json(port, path) == (404, {"error": "Not found"})
    for method, path in (
        ("GET", "/api/message"),
        ("DELETE", "/api/agents"),
        ("PUT", "/api/queue/dead/1"),
    ):
        assert await ask_json(port, path, method) == (405, {"error": "Method not allowed"})
