"""Routes of memory: search observations, list identities, forget a subject for good."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.limits import Limits
from holdfast.consumers.memory import KnowledgeStoreOutboxRelay
from holdfast.memory.observation import Observation
from holdfast.store.memory import open_knowledge, open_observations
from tests.contract.http.steps import Api

ANN = "default:USER:ann"


async def remember(api: Api, content: str, id: str, subject: str = "ann") -> None:
    observations = open_observations(api.store)
    await observations.save(
        Observation(
            workspace_id="default", subject_type="USER", subject_id=subject, id=id, content=content
        )
    )
    await KnowledgeStoreOutboxRelay(observations, open_knowledge(api.store)).drain_once()


async def search(api: Api, **query: Any) -> Any:
    return await api.ask("GET", "/api/memory/search", role="read", params=query)


async def test_a_search_finds_observations_of_a_subject_best_first(api: Api) -> None:
    await remember(api, "Ann likes green tea", "a")
    await remember(api, "Ann rides a bicycle to work", "b")
    await remember(api, "Bob likes green tea", "c", "bob")
    status, found = await search(api, subject=ANN, q="green tea", limit=1)
    assert (status, [(one["id"], one["content"]) for one in found]) == (
        200,
        [("a", "Ann likes green tea")],
    )
    assert 0 < found[0]["score"] <= 1
    assert await search(api, subject="default:user:nobody", q="green tea") == (200, [])


async def test_subjects_are_listed_with_their_number_of_observations(api: Api) -> None:
    assert await api.get("/api/memory/subjects", role="read") == []
    await remember(api, "Ann likes green tea", "a")
    await remember(api, "Ann rides a bicycle", "b")
    assert await api.get("/api/memory/subjects", role="read") == [
        {"subject": ANN, "workspace": "default", "type": "USER", "id": "ann", "observations": 2}
    ]


async def list_subjects(api: Api, path: str) -> tuple[list[str], str]:
    """Ask for a page of subjects; their ids, and the address of the next page."""
    found, following = await api.page(path, role="read")
    return [one["id"] for one in found], following


async def test_subjects_are_listed_in_pages_that_the_header_link_names(api: Api) -> None:
    names = ["ann", "bob:x", "zo\u00eb"]
    for name in names:
        await remember(api, "likes tea", name, name)
    found, following = await list_subjects(api, "/api/memory/subjects?limit=2")
    assert len(found) == 2
    rest, _ = await list_subjects(api, following)
    assert sorted(found + rest) == names


@pytest.mark.parametrize("limits", [Limits(page_bytes=100)])
async def test_a_page_of_subjects_ends_at_a_number_of_bytes(api: Api, limits: Limits) -> None:
    for name in "abc":
        await remember(api, "likes tea", name, name * 60)
    found, following = await list_subjects(api, "/api/memory/subjects")
    assert found == ["a" * 60, "b" * 60]
    assert (await list_subjects(api, following))[0] == ["c" * 60]


@pytest.mark.parametrize("after", ["ann", "", "a:b:%00"])
async def test_an_invalid_position_in_the_list_is_refused(api: Api, after: str) -> None:
    status, answer = await api.ask("GET", f"/api/memory/subjects?after={after}")
    assert (status, list(answer)) == (400, ["error"])


@pytest.mark.parametrize("limits", [Limits(page_bytes=2000)])
async def test_a_search_answers_no_more_than_a_number_of_bytes(api: Api, limits: Limits) -> None:
    for number in range(4):
        await remember(api, f"tea number {number} " + "leaf " * 200, str(number))
    status, found = await search(api, subject=ANN, q="tea", limit=1000)
    assert (status, len(found)) == (200, 2)


async def test_a_forgotten_subject_leaves_nothing_and_removed_rows_are_counted(api: Api) -> None:
    await remember(api, "Ann likes green tea", "a")
    await api.say("I am Ann", senderId="ann")
    status, removed = await api.ask("DELETE", f"/api/memory/{ANN}")
    assert (status, removed["observations"], removed["index"], removed["events"]) == (200, 1, 1, 1)
    assert await search(api, subject=ANN, q="green tea") == (200, [])
    assert await api.get("/api/memory/subjects") == []
    status, removed = await api.ask("DELETE", f"/api/memory/{ANN}")
    assert (status, set(removed.values())) == (200, {0})


async def test_several_matching_identities_are_forgotten_only_if_all_is_asked_for(api: Api) -> None:
    for channel in ("web", "mail"):
        await api.say("hello", senderId="ann", channel=channel)
    both = ["default:USER:mail:id:ann", "default:USER:web:id:ann"]
    status, answer = await api.ask("DELETE", f"/api/memory/{ANN}")
    assert (status, sorted(answer), sorted(answer["identities"])) == (
        409,
        ["error", "identities"],
        both,
    )
    assert (await api.get("/api/queue/status"))["pending"] == 2
    status, removed = await api.ask("DELETE", f"/api/memory/{both[0]}")
    assert (status, removed["events"]) == (200, 1)
    await api.say("hello again", senderId="ann", channel="mail")
    status, removed = await api.ask("DELETE", f"/api/memory/{ANN}?all=true")
    assert (status, removed["events"]) == (200, 2)


async def test_only_an_admin_makes_others_forget(api: Api) -> None:
    for role in ("read", "send"):
        status, _ = await api.ask("DELETE", f"/api/memory/{ANN}", role=role)
        assert status == 403


@pytest.mark.parametrize(
    "query",
    [{}, {"subject": ANN}, {"q": "tea"}, {"subject": ANN, "q": " "}, {"subject": "ann", "q": "tea"}]
    + [{"subject": ANN, "q": "tea", "limit": limit} for limit in (0, 1001, "x")],
)
async def test_a_search_needs_a_subject_and_a_question(api: Api, query: dict[str, Any]) -> None:
    status, answer = await search(api, **query)
    assert (status, list(answer)) == (400, ["error"])


@pytest.mark.parametrize(
    "subject", ["ann", "default:ann", "default::ann", ":USER:ann", "default:USER:%00"]
)
async def test_an_invalid_subject_is_refused(api: Api, subject: str) -> None:
    status, answer = await api.ask("DELETE", f"/api/memory/{subject}")
    assert (status, list(answer)) == (400, ["error"])
