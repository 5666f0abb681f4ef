"""A client that pulls: TinyAGI's names on the stream, the status, files, and the example."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench import event_stream
from holdfast import AgentHarness, Reply, Turn
from holdfast.api.dialect import Translator
from holdfast.api.security.bootstrap_tokens import Role
from holdfast.settings import Settings
from holdfast.store.files import conversation_folder, write_file
from holdfast.testing.databases import Databases
from tests.api.serving import serving, token_of
from tests.steps import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "pull_client.py"
MESSAGE = {"messageId": "api_1", "agent": "coder", "channel": "api", "sender": "ann"}


@pytest.fixture
def app(databases: Databases, tmp_path: Path) -> Iterator[AgentHarness]:
    with databases.fresh("sqlite") as url:
        yield AgentHarness(answer, default="coder", settings=Settings(home=tmp_path, database=url))


async def answer(turn: Turn) -> Reply:
    files = ("report.txt",) if "file" in turn.text else ()
    return Reply(f"you said {turn.text}", files=files)


def client(port: int, role: Role = "send", **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=token_of(port, role) | headers
    )


def put_file(app: AgentHarness) -> None:
    assert app.settings is not None
    write_file(app.settings.files / "report.txt", b"all is well")


async def ask(http: httpx.AsyncClient, text: str, **fields: str) -> dict[str, Any]:
    """Send a message and wait for its response."""
    body = {"message": text, "channel": "pull", "sender": "ann", **fields}
    message_id = (await http.post("/api/message", json=body)).json()["messageId"]

    async def response() -> dict[str, Any] | None:
        found = (await http.get("/api/responses/pending?channel=pull")).json()
        return next((one for one in found if one["messageId"] == message_id), None)

    return dict(await until(response))


async def test_the_example_sends_waits_pulls_and_acks(app: AgentHarness) -> None:
    async with serving(app) as port:
        put_file(app)
        token = token_of(port, "send")["authorization"].removeprefix("Bearer ")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLE), "send a file"),
            env={"URL": f"http://127.0.0.1:{port}", "TOKEN": token},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        async with client(port) as http:
            pending = (await http.get("/api/responses/pending?channel=pull")).json()
    lines = output.decode().splitlines()
    assert lines[0] == "you said send a file"
    assert lines[1].endswith("-0: 11 bytes")
    assert pending == []


async def test_the_stream_has_the_names_of_tinyagi_beside_ours(app: AgentHarness) -> None:
    async with serving(app) as port:
        headers = token_of(port, "read")
        async with event_stream.watching(port, query="?dialect=tinyagi", headers=headers) as stream:
            assert (await stream.next()).event == "connected"
            async with client(port) as http:
                await http.post("/api/message", json={"message": "hello", "sender": "ann"})
            frames = [await stream.next() for _ in range(10)]
    assert [frame.event for frame in frames] == [
        *("message:incoming", "message_received", "agent_routed"),
        *("agent:invoke", "chain_step_start", "agent:response", "chain_step_done"),
        *("response_delta", "message:done", "response_ready"),
    ]
    done = next(frame.data for frame in frames if frame.event == "message:done")
    assert (done["responseText"], done["responseLength"]) == ("you said hello", 14)
    assert (done["channel"], done["sender"], done["agentId"]) == ("api", "ann", "coder")


async def test_a_filter_takes_names_of_either_dialect(app: AgentHarness) -> None:
    async with serving(app) as port:
        headers = token_of(port, "read")
        query = "?dialect=tinyagi&type=message:done"
        async with event_stream.watching(port, query=query, headers=headers) as stream:
            assert (await stream.next()).event == "connected"
            async with client(port) as http:
                await http.post("/api/message", json={"message": "hello"})
                frame = await stream.next()
                refused = await http.get("/api/events/stream?dialect=tinyagi&type=nonsense")
                without = await http.get("/api/events/stream?type=message:done")
                unknown = await http.get("/api/events/stream?dialect=esperanto")
    assert (frame.event, frame.data["responseText"]) == ("message:done", "you said hello")
    assert (refused.status_code, without.status_code, unknown.status_code) == (400, 400, 400)


async def test_a_client_that_resumes_between_two_names_gets_both_again(app: AgentHarness) -> None:
    async with serving(app) as port:
        query = "?dialect=tinyagi"
        headers = token_of(port, "read")
        async with event_stream.watching(port, headers=headers, query=query) as stream:
            await stream.next()
            async with client(port) as http:
                await http.post("/api/message", json={"message": "hello"})
            while (frame := await stream.next()).event != "message:done":
                pass
        again = headers | {"Last-Event-ID": frame.id}
        async with event_stream.watching(port, headers=again, query=query) as stream:
            types = [(await stream.next()).event for _ in range(3)]
    assert types == ["connected", "message:done", "response_ready"]


def test_every_frame_of_tinyagi_has_its_keys() -> None:
    translator = Translator({"coder": "Coder"}, set())

    def translate(kind: str, **further: object) -> dict[str, Any]:
        return translator.translate({"type": kind, "timestamp": 7} | MESSAGE | further) or {}

    incoming = translate("message_received", message="x" * 500)
    assert (incoming["type"], len(incoming["message"])) == ("message:incoming", 120)
    invoke = translate("chain_step_start")
    assert (invoke["agentId"], invoke["agentName"]) == ("coder", "Coder")
    assert translate("progress", text="reading")["text"] == "reading"
    response = translate("chain_step_done", response="done")
    assert (response["role"], response["content"]) == ("assistant", "done")
    mention = translate("chain_handoff", fromAgent="coder", toAgent="writer")
    assert (mention["fromAgent"], mention["toAgent"]) == ("coder", "writer")
    assert translate("response_ready")["responseText"] == "done"
    assert "responseText" not in translate("response_ready", messageId="api_2")
    assert translate("step_start") == {}


async def test_the_status_names_channels_and_heartbeats(app: AgentHarness) -> None:
    assert app.settings is not None
    app.settings = app.settings.model_copy(update={"heartbeat": timedelta(hours=1)})
    async with serving(app) as port, client(port, "read") as http:

        async def beating() -> dict[str, Any] | None:
            found: dict[str, Any] = (await http.get("/api/status")).json()
            return found if found["heartbeat"]["running"] else None

        status = await until(beating)
    assert status["ok"] is True
    assert status["server"] == {"running": True, "port": port}
    assert status["channels"]["schedule"] == {"running": True}
    assert status["heartbeat"]["interval"] == 3600


async def test_a_file_is_for_those_who_may_see_its_response(app: AgentHarness) -> None:
    async with serving(app) as port, client(port, "admin") as admin:
        put_file(app)
        owner, other = [
            (await admin.post("/api/tokens", json={"name": name, "role": "send"})).json()["token"]
            for name in ("owner", "other")
        ]
        async with client(port, authorization=f"Bearer {owner}") as http:
            response = await ask(http, "a file")
            path = f"/api/files/{response['fileIds'][0]}"
            file = await http.get(path)
            assert (file.status_code, file.content) == (200, b"all is well")
            assert "attachment" in file.headers["content-disposition"]
            assert (await http.get(f"/api/files/{response['id']}-1")).status_code == 404
            await http.post(f"/api/responses/{response['id']}/ack")
            assert (await http.get(path)).status_code == 200, "also after the ack"
        async with client(port, authorization=f"Bearer {other}") as http:
            assert (await http.get(path)).status_code == 404
        assert (await admin.get("/api/files/1")).status_code == 400
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as nobody:
            assert (await nobody.get(path)).status_code == 401


async def test_a_file_of_another_conversation_is_not_served(app: AgentHarness) -> None:
    async with serving(app) as port, client(port, "admin") as admin:
        assert app.settings is not None
        foreign = conversation_folder(app.settings.files, "pull", "pull:bob") / "secret.txt"
        write_file(foreign, b"secret")
        app.hooks.outgoing.append(lambda turn, reply: Reply(reply.text, files=(str(foreign),)))
        response = await ask(admin, "hello")
        assert "fileIds" not in response
