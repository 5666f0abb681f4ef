"""POST, GET and DELETE of /api/files, and files of messages."""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from holdfast.chat import AgentMessage, AnswerFile
from holdfast.consumers import pruner
from holdfast.consumers.pruner import Pruner
from holdfast.errors import StoreUnavailable
from holdfast.queue.outcome import Done
from holdfast.store.files import sendable_path
from holdfast.store.uploads import Files, new_file_id
from tests.contract.http.steps import Api
from tests.contract.http.test_conversations import answer
from tests.contract.http.test_tokens import ask, create, say, seen

WEB: dict[str, Any] = {"channel": "web", "sender": "web", "senderId": "web-1"}
TRIP = "web:web-1/trip"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100
MIB = 1024 * 1024


async def upload(
    api: Api, content: Any = b"hello", name: str = "plan.txt", token: str | None = None
) -> httpx.Response:
    headers = {"authorization": f"Bearer {token or api.tokens['send']}"}
    return await api.client.post(
        "/api/files", params={"name": name}, content=content, headers=headers
    )


async def uploaded(api: Api, *args: Any, **options: Any) -> str:
    response = await upload(api, *args, **options)
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


async def download(api: Api, id_: str, query: str = "", token: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {token or api.tokens['read']}"}
    return await api.client.get(f"/api/files/{id_}{query}", headers=headers)


def contents(api: Api) -> list[str]:
    folder = api.settings.files / "uploads"
    return sorted(os.listdir(folder)) if folder.exists() else []


async def lines(api: Api, query: str = "") -> Any:
    return await api.get(f"/api/conversations/{quote(TRIP, safe='')}/messages{query}")


async def test_a_file_is_uploaded_sent_listed_and_downloaded(api: Api) -> None:
    response = await upload(api, PNG, "Büro plan.png")
    file = response.json()
    assert file == {
        "id": file["id"],
        "name": "Büro plan.png",
        "size": len(PNG),
        "type": "image/png",
    }
    await api.say("look", conversation="trip", files=[file["id"]], **WEB)
    await answer(api, "nice")
    reply, asked = await lines(api)
    assert (asked["files"], "files" in reply) == ([file], False)
    found = await download(api, file["id"])
    assert found.content == PNG
    assert found.headers["content-disposition"] == (
        "attachment; filename*=UTF-8''B%C3%BCro%20plan.png"
    )
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in found.headers["content-security-policy"]


async def test_a_waiting_message_shows_its_files(api: Api) -> None:
    file = await uploaded(api)
    await api.say("look", conversation="trip", files=[file], **WEB)
    [asked] = await lines(api)
    assert [one["id"] for one in asked["files"]] == [file]


async def test_the_agent_finds_the_files_in_the_message(api: Api) -> None:
    file = await uploaded(api, b"12345", "a.csv")
    await api.say("look", files=[file])
    event = (await api.claim()).primary.event
    assert event["files"] == [{"id": file, "name": "a.csv", "size": 5, "type": "text/csv"}]


async def test_a_file_alone_is_a_message(api: Api) -> None:
    files = [await uploaded(api, name=name) for name in ("a.txt", "b.txt")]
    status, _ = await api.post("/api/message", {"files": files, "conversation": "trip", **WEB})
    assert status == 200
    [asked] = await lines(api)
    assert (asked["message"], len(asked["files"])) == ("a.txt, b.txt", 2)
    assert await api.post("/api/message", {"files": []}) == (
        400,
        {"error": "message is required"},
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/etc/shadow", "shadow"),
        ("....", "file"),
        ("a\x00b.txt", "ab.txt"),
        ("evil\u202egpj.exe", "evilgpj.exe"),
        ("\r\nset-cookie: a=b", "set-cookie: a=b"),
        ("x" * 900 + ".tar", "x" * 196 + ".tar"),
        ("<script>.html", "<script>.html"),
        (".bashrc", "bashrc"),
    ],
)
async def test_a_name_loses_its_tricks(api: Api, name: str, shown: str) -> None:
    response = await upload(api, name=name)
    assert response.json()["name"] == shown
    id_ = response.json()["id"]
    assert contents(api) == [id_], "the name is no path on the disk"
    headers = (await download(api, id_)).headers
    assert headers["content-disposition"] == f"attachment; filename*=UTF-8''{quote(shown)}"


@pytest.mark.parametrize("name", ["page.html", "a.HTM", "b.svg", "c.xml", "d.js", "e", "f.xhtml"])
async def test_what_could_run_a_script_is_never_shown_inline(api: Api, name: str) -> None:
    id_ = await uploaded(api, b"<script>alert(1)</script>", name)
    found = await download(api, id_, "?inline=true")
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["content-disposition"].startswith("attachment")


async def test_an_image_is_shown_inline_if_asked(api: Api) -> None:
    found = await download(api, await uploaded(api, PNG, "a.png"), "?inline=true")
    assert found.headers["content-type"] == "image/png"
    assert found.headers["content-disposition"].startswith("inline")
    assert int(found.headers["content-length"]) == len(PNG)


async def test_files_of_others_are_not_found(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    file = await uploaded(api, token=ada)
    assert (await download(api, file, token=ada)).status_code == 200
    assert (await download(api, file, token=bob)).status_code == 404
    assert (await ask(api, bob, "DELETE", f"/api/files/{file}"))[0] == 404
    for body in ({"message": "x", "files": [file]}, {"files": [file]}):
        assert await ask(api, bob, "POST", "/api/message", body) == (
            404,
            {"error": f"file not found: {file}"},
        )
    await say(api, ada, "mine", files=[file], conversation="trip", **WEB)
    assert (await download(api, file, token=ada)).status_code == 200
    assert (await download(api, file, token=bob)).status_code == 404
    assert (await download(api, file, token=api.tokens["admin"])).status_code == 200
    assert await ask(api, ada, "DELETE", f"/api/files/{file}") == (
        404,
        {"error": "file not found"},
    )


async def test_a_bound_reader_sees_files_of_its_agents_and_channels(api: Api) -> None:
    file = await uploaded(api)
    await api.say("look", conversation="trip", files=[file], **WEB)
    await answer(api, "ok")
    for name, rights, status in (
        ("of web", {"channels": ["web"]}, 200),
        ("of api", {"channels": ["api"]}, 404),
        ("of coder", {"agents": ["coder"]}, 200),
        ("of writer", {"agents": ["writer"]}, 404),
    ):
        token = await create(api, name, "read", **rights)
        assert (await download(api, file, token=token)).status_code == status, rights


async def test_a_file_of_another_conversation_cannot_be_sent(api: Api) -> None:
    file = await uploaded(api)
    await api.say("look", conversation="trip", files=[file], **WEB)
    body = {"message": "x", "conversation": "other", "files": [file], **WEB}
    assert (await api.post("/api/message", body))[0] == 404


async def test_unknown_and_too_many_files_are_refused(api: Api) -> None:
    for given in ([new_file_id()], ["../x"], ["17-0"], [""]):
        assert (await api.post("/api/message", {"message": "x", "files": given}))[0] == 404
    for wrong in ([7], "x", ["a"] * 21, [None]):
        assert (await api.post("/api/message", {"message": "x", "files": wrong}))[0] == 400
    for unknown in (new_file_id(), "17-0"):
        assert (await download(api, unknown)).status_code == 404
    for wrong in ("file_1", "file_" + "g" * 24, "..%2f..%2fpasswd", "uploads"):
        assert (await download(api, wrong)).status_code in (400, 404)


async def test_a_file_over_the_limit_is_refused_and_leaves_nothing(api: Api) -> None:
    api.app.state.api.settings = api.settings.model_copy(update={"max_upload": 1})
    limits = await api.get("/api/limits", "read")
    assert limits == {"maxUpload": MIB, "maxFiles": 20, "maxMessage": MIB}
    assert (await upload(api, b"a" * MIB)).status_code == 200
    refused = await upload(api, b"a" * (MIB + 1))
    assert (refused.status_code, refused.json()) == (
        413,
        {"error": "the file is over 1 MiB, the setting `max_upload`"},
    )

    async def pieces() -> Any:
        for _ in range(100):
            yield b"a" * 64 * 1024

    assert (await upload(api, pieces())).status_code == 413, "also without a length"
    assert len(contents(api)) == 1


async def test_a_file_longer_than_a_message_may_be_is_taken(api: Api) -> None:
    content = os.urandom(3 * MIB)
    assert (await download(api, await uploaded(api, content))).content == content


async def test_other_bodies_are_still_limited(api: Api) -> None:
    headers = {"authorization": f"Bearer {api.tokens['send']}"}
    for path in ("/api/message", "/api/files/", "/api/files/x"):
        found = await api.client.post(path, content=b"a" * (MIB + 1), headers=headers)
        assert found.status_code == 413, path


async def test_an_empty_file_is_refused_and_leaves_nothing(api: Api) -> None:
    assert (await upload(api, b"")).status_code == 400
    assert (await api.client.post("/api/files?name=a", content=b"a")).status_code == 401
    assert contents(api) == []


async def test_an_upload_that_cannot_be_noted_leaves_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*arguments: object) -> None:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(Files, "add", refuse)
    assert (await upload(api)).status_code == 503
    assert contents(api) == []


async def test_who_hoards_uploads_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.api.routes.files.MOST_UNSENT", 2)
    files = [await uploaded(api) for _ in range(2)]
    assert (await upload(api)).status_code == 409
    assert (await upload(api, token=await create(api, "ada"))).status_code == 200
    await api.say("look", files=files[:1])
    assert (await upload(api)).status_code == 200
    assert await api.ask("DELETE", f"/api/files/{files[1]}", role="send") == (200, {"ok": True})
    assert (await upload(api)).status_code == 200
    assert files[1] not in contents(api)


async def test_uploads_at_once_do_not_pass_the_limit(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.api.routes.files.MOST_UNSENT", 2)
    all_checked = asyncio.Barrier(5)

    async def content() -> AsyncIterator[bytes]:
        # A body is read after its request has passed the check.
        await all_checked.wait()
        yield b"hello"

    found = await asyncio.gather(*(upload(api, content()) for _ in range(5)))
    assert sorted(one.status_code for one in found) == [200, 200, 409, 409, 409]
    assert contents(api) == sorted(one.json()["id"] for one in found if one.status_code == 200)
    assert (await Files(api.store).unsent(""))[0] == 2


async def test_a_slow_disk_is_not_taken_for_a_slow_client(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall = 0.1
    api.app.state.api.limits = replace(api.app.state.api.limits, body_stall_seconds=stall)

    class SlowDisk(io.FileIO):
        def write(self, content: Any) -> int:
            time.sleep(3 * stall)
            return super().write(content)

    def create_slow(path: Path) -> SlowDisk:
        path.parent.mkdir(parents=True, exist_ok=True)
        return SlowDisk(path, "xb")

    monkeypatch.setattr("holdfast.api.routes.files._create", create_slow)
    assert (await upload(api)).status_code == 200


async def test_uploads_that_nobody_sends_are_pruned(api: Api, clock: Any) -> None:
    sent, unsent = await uploaded(api), await uploaded(api)
    await api.say("look", files=[sent])
    folder = api.settings.files / "uploads"
    stray, part = folder / new_file_id(), folder / f"{new_file_id()}.part"
    young = folder / f"{new_file_id()}.part"
    for path in (stray, part, young):
        path.write_bytes(b"x")
    before = time.time() - 2 * 86400
    for path in (stray, part, folder / sent):
        os.utime(path, (before, before))
    await Pruner(api.store, api.settings).sweep()
    assert contents(api) == sorted([sent, unsent, young.name]), "a day has not passed"
    clock.tick(days=1, seconds=1)
    await Pruner(api.store, api.settings).sweep()
    assert contents(api) == sorted([sent, young.name])
    assert (await download(api, unsent)).status_code == 404
    clock.tick(days=31)
    await Pruner(api.store, api.settings).sweep()
    assert contents(api) == [young.name], "the setting keep_files"
    assert timedelta(days=1) == pruner.KEEP_UNSENT


@pytest.mark.usefixtures("files")
async def test_files_of_answers_are_listed_with_them(api: Api) -> None:
    await api.say("make a report", conversation="trip", **WEB)
    turn = await api.claim()
    line: dict[str, Any] = {
        "agent_id": "coder",
        "channel": "web",
        "conversation": TRIP,
        "message_id": turn.primary.message_id,
        "content": "x",
    }
    file = answer_file("coder", turn.primary.message_id or "")
    records = (
        AgentMessage(role="user", sender="web", event_id=turn.primary.id, **line),
        AgentMessage(role="assistant", sender="coder", **line),
        file,
    )
    await api.store.settle([(turn, Done(records=records))])
    reply, asked = await lines(api)
    assert "files" not in asked
    assert [one["name"] for one in reply["files"]] == ["report.txt"]
    assert (await download(api, reply["files"][0]["id"])).text == "all is well"


@pytest.mark.usefixtures("files")
async def test_a_bound_reader_sees_no_files_of_other_agents(api: Api) -> None:
    asked = await uploaded(api, b"asked")
    id_ = await api.say("make reports", conversation="trip", files=[asked], **WEB)
    turn = await api.claim()
    made = {agent: answer_file(agent, id_) for agent in ("coder", "writer")}
    line: dict[str, Any] = {"channel": "web", "conversation": TRIP, "message_id": id_}
    lines = (
        AgentMessage(role="assistant", agent_id=agent, sender=agent, content="x", **line)
        for agent in made
    )
    await api.store.settle([(turn, Done(records=(*lines, *made.values())))])
    token = await create(api, "of coder", "read", agents=["coder"])
    assert (await download(api, made["coder"].id, token=token)).status_code == 200
    assert (await download(api, made["writer"].id, token=token)).status_code == 404
    found = (await seen(api, token, f"/api/message/{id_}"))["files"]
    assert {file["id"] for file in found} == {asked, made["coder"].id}
    assert len((await api.get(f"/api/message/{id_}"))["files"]) == 3


def answer_file(agent: str, message_id: str) -> AnswerFile:
    return AnswerFile(
        id=new_file_id(),
        owner=None,
        name="report.txt",
        type="text/plain",
        size=11,
        path="report.txt",
        agent=agent,
        message_id=message_id,
        conversation=TRIP,
        subject="",
    )


async def test_an_agent_cannot_send_uploads_of_others(api: Api) -> None:
    file = await uploaded(api, b"secret")
    root = api.settings.files
    for name in (f"uploads/{file}", f"UPLOADS/{file}", str(root / "uploads" / file)):
        assert sendable_path(root, name, "web", TRIP) is None


async def test_deleting_a_conversation_deletes_its_files(api: Api) -> None:
    sent, other = await uploaded(api), await uploaded(api)
    await api.say("look", conversation="trip", files=[sent], **WEB)
    status, deleted = await api.ask("DELETE", f"/api/conversations/{quote(TRIP, safe='')}")
    assert (status, deleted["files"]) == (200, 1)
    assert contents(api) == [other]
    assert (await download(api, sent)).status_code == 404
