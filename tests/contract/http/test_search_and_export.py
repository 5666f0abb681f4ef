"""GET /api/conversations/search and /api/conversations/:id/export."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from holdfast.api.limits import Limits
from holdfast.store.conversation_search import (
    ConversationSearch,
    cut_snippet,
    find_marks,
    pattern_of,
)
from holdfast.store.scoped import Scope
from tests.contract.http.steps import Api
from tests.contract.http.test_tokens import ask, create, say, seen
from tests.contract.http.test_uploads import uploaded
from tests.contract.http.test_versions import reply

WEB: dict[str, Any] = {"channel": "web", "sender": "ada", "senderId": "web-1"}
TRIP = "web:web-1/trip"


@pytest.fixture
def limits() -> Limits:
    return Limits(quick_query=timedelta.max, conversation_interval=timedelta(0))


async def begin(api: Api, topic: str, asked: str, answered: str) -> None:
    await api.say(asked, conversation=topic, **WEB)
    await reply(api, answered)


async def search(api: Api, words: str, more: str = "") -> Any:
    return await api.get(f"/api/conversations/search?q={quote(words)}{more}", "read")


async def names(api: Api, words: str, more: str = "") -> list[str]:
    return [one["conversation"].partition("/")[2] for one in await search(api, words, more)]


async def test_titles_and_lines_are_found_in_any_case(api: Api) -> None:
    await begin(api, "trip", "Plan a trip", "Take the night train to ROME")
    await begin(api, "build", "Fix the build", "The ärger was in Straße 7")
    assert await names(api, "rome night") == ["trip"]
    assert await names(api, "PLAN") == ["trip"]
    assert await names(api, "the") == ["build", "trip"]
    assert await names(api, "ÄRGER") == ["build"]
    assert await names(api, "straße") == ["build"]
    assert await names(api, "rome build") == []


async def test_a_hit_has_marks_in_code_points(api: Api) -> None:
    await begin(api, "trip", "hello", "😀 take the train, the TRAIN")
    [hit] = await search(api, "train")
    [snippet] = hit["snippets"]
    marked = [snippet["text"][start:end] for start, end in snippet["marks"]]
    assert marked == ["train", "TRAIN"]
    assert (snippet["role"], snippet["agent"], hit["titleMarks"]) == ("assistant", "coder", [])
    [hit] = await search(api, "ell")
    assert hit["titleMarks"] == [[1, 4]]
    lines = await api.get(f"/api/conversations/{quote(TRIP, safe='')}/messages")
    assert snippet["lineId"] == lines[0]["id"]


async def test_at_most_three_snippets_the_newest_first(api: Api) -> None:
    for number in range(5):
        await begin(api, "trip", "go", f"answer {number}")
    [hit] = await search(api, "answer")
    assert [one["text"] for one in hit["snippets"]] == ["answer 4", "answer 3", "answer 2"]


@pytest.mark.parametrize("query", ["%", "_", "!", "a%b", "'; drop table agent.event; --", "100%"])
async def test_signs_of_patterns_are_plain_text(api: Api, query: str) -> None:
    await begin(api, "trip", "nothing here", "axb")
    assert await names(api, query) == []
    await begin(api, "other", f"it says {query} here", "yes")
    assert await names(api, query) == ["other"]


async def test_a_wrong_query_is_refused(api: Api) -> None:
    for query in ("", "?q=", "?q=%20", f"?q={'a' * 201}", "?q=a&limit=0", "?q=a%00b"):
        assert (await api.ask("GET", f"/api/conversations/search{query}"))[0] == 400


async def test_a_sender_finds_its_own_conversations_alone(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    await say(api, ada, "secret plan", conversation="trip", **WEB)
    await reply(api, "psst")
    assert len(await seen(api, ada, "/api/conversations/search?q=secret")) == 1
    assert await seen(api, bob, "/api/conversations/search?q=secret") == []
    assert await seen(api, bob, "/api/conversations/search?q=psst") == []


async def test_a_bound_reader_finds_lines_of_its_agents_alone(api: Api) -> None:
    await api.say("for the coder", conversation="trip", **WEB)
    await reply(api, "code")
    await api.say("for the writer", conversation="trip", agent="writer", **WEB)
    await reply(api, "prose", "writer")
    token = await create(api, "of writer", "read", agents=["writer"])
    assert len(await seen(api, token, "/api/conversations/search?q=prose")) == 1
    for hidden in ("code", "coder"):
        assert await seen(api, token, f"/api/conversations/search?q={hidden}") == []


async def test_older_versions_are_not_found(api: Api) -> None:
    first = await api.say("whence", conversation="trip", **WEB)
    await reply(api, "unfindable")
    body = {"edits": first, "message": "why", "conversation": "trip", **WEB}
    assert (await api.post("/api/message", body))[0] == 200
    await reply(api, "because")
    assert await names(api, "unfindable") == []
    assert await names(api, "because") == ["trip"]


async def test_a_search_goes_on_where_it_ended(api: Api) -> None:
    for number in range(5):
        await api.say(f"number {number}", conversation=str(number), **WEB)
    search = ConversationSearch(api.store, batch=2, most_searched=2)
    found, before_id = list[list[str]](), None
    while True:
        page = await search.search(Scope(), "number", before_id=before_id)
        found.append([hit.conversation.title for hit in page.hits])
        before_id = page.next_before
        if before_id is None:
            break
    assert found == [["number 4", "number 3"], ["number 2", "number 1"], ["number 0"]]


async def test_a_page_of_a_search_names_the_next_one(api: Api) -> None:
    for number in range(5):
        await api.say(f"number {number}", conversation=str(number), **WEB)
    first, following = await api.page("/api/conversations/search?q=number&limit=1")
    assert (first[0]["title"], bool(following)) == ("number 4", True)
    rest, _ = await api.page(following)
    assert rest[0]["title"] == "number 3"


def test_snippets_are_short_and_on_one_line() -> None:
    found = cut_snippet("a\n" * 500 + "the needle\n" + "b " * 500, ["needle"])
    assert found is not None
    text, marks = found
    assert (len(text) < 220, "\n" in text) == (True, False)
    assert [text[start:end] for start, end in marks] == ["needle"]
    assert cut_snippet("abc", ["x"]) is None
    assert find_marks("aaaa", ["aa", "a"]) == [(0, 4)]
    assert pattern_of("ä%b") == "%%!%b%"


async def export(api: Api, kind: str = "", token: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {token or api.tokens['read']}"}
    path = f"/api/conversations/{quote(TRIP, safe='')}/export{kind}"
    return await api.client.get(path, headers=headers)


async def test_a_conversation_is_exported_as_markdown_and_json(api: Api) -> None:
    file = await uploaded(api, name="plan.pdf")
    await api.say("Where/to?", conversation="trip", files=[file], **WEB)
    await reply(api, "To *Rome*")
    await begin(api, "trip", "When?", "Soon")
    found = await export(api)
    assert found.headers["content-type"] == "text/markdown; charset=utf-8"
    assert found.headers["content-disposition"] == "attachment; filename*=UTF-8''Where-to%3F.md"
    text = found.text
    assert text.startswith("# Where/to?\n\n## web, ")
    assert "File: plan.pdf (5 bytes)" in text
    assert text.index("Where/to?\n") < text.index("To *Rome*") < text.index("When?")
    found = await export(api, "?format=json")
    exported = json.loads(found.content)
    assert [line["message"] for line in exported["lines"]] == [
        "Where/to?", "To *Rome*", "When?", "Soon",
    ]  # fmt: skip
    assert (exported["conversation"], exported["title"]) == (TRIP, "Where/to?")
    assert exported["lines"][0]["files"][0]["name"] == "plan.pdf"


async def test_a_long_conversation_is_exported_page_by_page(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.api.routes.conversation_export.PAGE", 3)
    for number in range(5):
        await begin(api, "trip", f"q{number}", f"a{number}")
    exported = json.loads((await export(api, "?format=json")).content)
    assert [line["message"] for line in exported["lines"]] == [
        f"{kind}{number}" for number in range(5) for kind in "qa"
    ]


async def test_an_export_has_the_rights_of_the_conversation(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    await say(api, ada, "secret", conversation="trip", **WEB)
    await reply(api, "psst")
    assert (await export(api, token=ada)).status_code == 200
    assert (await export(api, token=bob)).status_code == 404
    assert (await ask(api, ada, "GET", "/api/conversations/web%3Anobody/export"))[0] == 404
    assert (await export(api, "?format=pdf")).status_code == 400
