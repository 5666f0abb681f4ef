"""Uploads over real sockets: whole, cut short, slow, and read by an agent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from holdfast.agents.turn import Turn
from holdfast.api.limits import Limits
from holdfast.app import AgentHarness
from holdfast.settings import Settings
from tests.api.serving import LOOPBACK, ask_json, secret_of, serving, token_of
from tests.steps import until

WEB: dict[str, Any] = {"channel": "web", "sender": "web", "senderId": "w", "conversation": "c"}


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database=database_url)


async def read_files(turn: Turn) -> str:
    paths = await turn.files()
    return " | ".join(f"{path.name}: {path.read_text()}" for path in paths)


def harness(settings: Settings) -> AgentHarness:
    app = AgentHarness(default="reader", settings=settings)

    async def forward(turn: Turn) -> str:
        return "[@reader: what is in it?]"

    app.add("reader", read_files)
    app.add("boss", forward)
    app.team("team", name="Team", agents=["boss", "reader"], leader="boss")
    return app


def uploads(app: AgentHarness) -> list[str]:
    assert app.settings is not None
    folder = app.settings.files / "uploads"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def upload(port: int, content: bytes, name: str = "a.txt") -> str:
    async with httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{port}", timeout=60) as client:
        answer = await client.post(
            "/api/files", params={"name": name}, content=content, headers=token_of(port, "send")
        )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def begin_upload(port: int, length: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    head = (
        f"POST /api/files?name=a.txt HTTP/1.1\r\nhost: {LOOPBACK}:{port}\r\n"
        f"authorization: Bearer {secret_of(port, 'send')}\r\ncontent-length: {length}\r\n\r\n"
    )
    writer.write(head.encode() + b"a" * 1000)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_an_agent_and_its_teammates_read_the_files_of_a_message(settings: Settings) -> None:
    app = harness(settings)
    async with serving(app) as port:
        for agent in ("reader", "team"):
            file = await upload(port, b"all is well", "../../re:port.txt")
            body = {"message": "look", "agent": agent, "files": [file], **WEB}
            _, stored = await ask_json(port, "/api/message", "POST", body)

            async def answered(id_: str = stored["messageId"]) -> Any:
                _, found = await ask_json(port, f"/api/message/{id_}")
                return [one["message"] for one in found["responses"]]

            assert await until(answered) == ["re_port.txt: all is well"]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_file_that_an_agent_sends_is_in_the_conversation(settings: Settings) -> None:
    from holdfast import Reply

    app = AgentHarness(settings=settings)

    @app.agent("maker")
    async def maker(turn: Turn) -> Reply:
        assert app.settings is not None
        path = app.settings.files / "report.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("made")
        return Reply("here", files=("report.txt",))

    async with serving(app) as port:
        await ask_json(port, "/api/message", "POST", {"message": "make", **WEB})
        path = f"/api/conversations/{quote('web:w/c', safe='')}/messages"

        async def listed() -> Any:
            _, lines = await ask_json(port, path)
            return [file for line in lines for file in line.get("files", ())]

        [file] = await until(listed)
        assert (file["name"], file["size"], file["type"]) == ("report.txt", 4, "text/plain")
        async with httpx.AsyncClient(headers=token_of(port, "read")) as client:
            found = await client.get(f"http://{LOOPBACK}:{port}/api/files/{file['id']}")
        assert found.text == "made"


async def test_an_upload_that_breaks_off_leaves_nothing(settings: Settings) -> None:
    app = harness(settings)
    async with serving(app) as port:
        _, writer = await begin_upload(port, 1_000_000)
        await until(lambda: uploads(app))
        writer.transport.abort()
        await until(lambda: not uploads(app))
        assert await upload(port, b"x") in uploads(app)


async def test_an_upload_that_stalls_is_ended(settings: Settings) -> None:
    app = harness(settings)
    async with serving(app, limits=Limits(body_stall_seconds=0.5)) as port:
        reader, writer = await begin_upload(port, 1_000_000)
        answer = await asyncio.wait_for(reader.read(), 60)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert uploads(app) == []
        writer.close()


async def test_an_announced_length_over_the_limit_is_refused_at_once(settings: Settings) -> None:
    app = harness(settings)
    async with serving(app) as port:
        reader, writer = await begin_upload(port, 26 * 1024 * 1024)
        answer = await asyncio.wait_for(reader.read(), 60)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"].startswith("the file is over")
        assert uploads(app) == []
        writer.close()


async def test_twenty_mebibytes_are_uploaded_and_downloaded(settings: Settings) -> None:
    app = harness(settings)
    content = bytes(range(256)) * 4 * 1024 * 20
    async with serving(app) as port:
        file = await upload(port, content, "big.bin")
        async with httpx.AsyncClient(headers=token_of(port, "read"), timeout=60) as client:
            found = await client.get(f"http://{LOOPBACK}:{port}/api/files/{file}")
    assert found.content == content


async def test_a_file_on_another_machine_is_a_clear_error(
    tmp_path: Path,
) -> None:
    from holdfast.errors import HoldfastError
    from holdfast.routing.uploads import fetch_uploads

    payload = {"kind": "message", "channel": "web", "conversation": "web:w", "sender": "w"}
    payload |= {"files": [{"id": "file_" + "0" * 24, "name": "a.txt"}]}  # type: ignore[dict-item]
    with pytest.raises(HoldfastError, match="share the files root"):
        await fetch_uploads(tmp_path, [payload])
    for hostile in ("../x", "file_" + "0" * 24 + "/..", 7, None):
        payload["files"] = [{"id": hostile}, "x", None]  # type: ignore[assignment]
        assert await fetch_uploads(tmp_path, [payload]) == []
