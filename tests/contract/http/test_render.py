"""POST /api/render, and texts as HTML in lists."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from holdfast.queue.outcome import Done
from tests.contract.http.steps import Api
from tests.contract.http.test_conversations import answer

WEB: dict[str, Any] = {"channel": "web", "sender": "web", "senderId": "web-1"}
HOSTILE = "<script>alert(1)</script> ![x](https://evil.example/x.png) [y](javascript:alert(1))"


async def test_a_text_is_rendered_for_every_reader(api: Api) -> None:
    given = {"text": "It **works**."}
    for role in ("read", "send", "admin"):
        assert await api.ask("POST", "/api/render", given, role) == (
            200,
            {"html": "<p>It <strong>works</strong>.</p>\n"},
        )


async def test_a_text_is_needed(api: Api) -> None:
    for given in ({}, {"text": 7}, {"text": None}):
        assert (await api.post("/api/render", given))[0] == 400
    assert await api.post("/api/render", {"text": ""}) == (200, {"html": ""})


async def test_a_text_over_a_mebibyte_is_refused_and_one_below_is_rendered(api: Api) -> None:
    assert (await api.post("/api/render", {"text": "a" * 1024 * 1024}))[0] == 413
    status, rendered = await api.post("/api/render", {"text": "- a\n" * 200_000})
    assert (status, rendered["html"].count("<li>")) == (200, 32 * 1024)


async def test_hostile_markdown_is_shown_as_text(api: Api) -> None:
    _, rendered = await api.post("/api/render", {"text": HOSTILE})
    assert "<script" not in rendered["html"]
    assert "<img" not in rendered["html"]
    assert 'href="javascript' not in rendered["html"]


async def test_lines_have_html_only_if_asked(api: Api) -> None:
    await api.say("a *question*", conversation="trip", **WEB)
    await answer(api, HOSTILE)
    path = f"/api/conversations/{quote('web:web-1/trip', safe='')}/messages"
    assert all("html" not in line for line in await api.get(path))
    answered, asked = await api.get(f"{path}?html=true", "read")
    assert asked["html"] == "<p>a <em>question</em></p>\n"
    assert asked["message"] == "a *question*"
    assert "<script" not in answered["html"]
    first, following = await api.page(f"{path}?html=true&limit=1")
    assert "html=true" in following
    assert first[0]["html"] == answered["html"]


async def test_a_page_of_long_lines_is_shorter_if_it_is_rendered(api: Api) -> None:
    for number in range(4):
        await api.say(f"{number} " + "word " * 30_000, conversation="long", **WEB)
        await answer(api, "ok")
    path = f"/api/conversations/{quote('web:web-1/long', safe='')}/messages"
    assert len(await api.get(path)) == 8
    first, following = await api.page(f"{path}?html=true")
    assert 2 <= len(first) < 8
    assert following


async def test_a_message_has_html_if_asked(api: Api) -> None:
    id_ = await api.say("a *question*", channel="api")
    turn = await api.claim()
    await api.store.settle([(turn, Done())])
    plain = await api.get(f"/api/message/{id_}")
    assert "messageHtml" not in plain
    found = await api.get(f"/api/message/{id_}?html=true")
    assert found["messageHtml"] == "<p>a <em>question</em></p>\n"
    assert "responseHtml" not in found
