"""Lists and pages for operators: messages, one event, dead letters in groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.api.limits import Limits
from holdfast.queue.audit import AuditFilter
from holdfast.queue.event import OUTBOX, NewEvent
from holdfast.queue.journal import EFFECT_UNKNOWN, JournalEntry, Step
from holdfast.queue.outcome import Dead, Done, Retry
from holdfast.queue.store import Filter
from holdfast.store.dead_groups import DeadGroups
from holdfast.testing.clock import Clock
from tests.contract.http.steps import Api
from tests.contract.http.test_tokens import ask, create, say


@pytest.fixture
def limits() -> Limits:
    """Neither counts nor callers are cached."""
    return Limits(quick_query=timedelta.max, caller_cache_seconds=0.0)


async def test_messages_are_listed_by_filters_newest_first(api: Api, clock: Clock) -> None:
    await api.say("first", agent="coder", sender="Ada")
    await api.complete()
    clock.tick(seconds=10)
    await api.say("second words", agent="writer", sender="Bob", channel="web")

    second, first = await api.get("/api/messages", "read")

    assert (first["message"], first["agent"], first["sender"]) == ("first", "coder", "Ada")
    assert (first["state"], first["outcome"], first["worker"]) == (
        "completed",
        "completed",
        "worker-1",
    )
    assert first["duration"] == 0
    assert (second["state"], second["outcome"], second["finishedAt"]) == ("pending", None, None)
    assert second["receivedAt"] - first["receivedAt"] == 10_000
    for query, found in (
        ("agent=writer", ["second words"]),
        ("channel=web", ["second words"]),
        ("sender=ada", ["first"]),
        ("state=completed", ["first"]),
        ("outcome=dead", []),
        ("text=WORD", ["second words"]),
        (f"since={second['receivedAt']}", ["second words"]),
        (f"until={first['receivedAt']}", ["first"]),
        ("agent=coder&text=word", []),
    ):
        rows = await api.get(f"/api/messages?{query}")
        assert [row["message"] for row in rows] == found, query


async def test_the_next_page_of_messages_is_named(api: Api) -> None:
    for number in range(5):
        await api.say(str(number))
    seen, address = [], "/api/messages?limit=2"
    while address:
        rows, address = await api.page(address, "read")
        seen += [row["message"] for row in rows]

    assert seen == ["4", "3", "2", "1", "0"]


async def test_wrong_filters_are_refused(api: Api) -> None:
    late = "until=99999999999999999"
    for query in ("state=odd", "outcome=odd", "limit=0", "since=-1", "text=", late):
        status, answer = await api.ask("GET", f"/api/messages?{query}")
        assert (status, list(answer)) == (400, ["error"]), query


async def test_a_sender_sees_only_its_own_messages_and_events(api: Api) -> None:
    own, other = await create(api, "ci", "send"), await create(api, "bot", "send")
    reader = await create(api, "narrow", "read", agents=["writer"])
    await say(api, own, "mine", agent="coder")
    await say(api, other, "theirs", agent="writer")
    ids = {row["message"]: row["id"] for row in await api.get("/api/messages")}

    status, rows = await ask(api, own, "GET", "/api/messages")
    assert (status, [row["message"] for row in rows]) == (200, ["mine"])
    assert (await ask(api, own, "GET", f"/api/events/{ids['theirs']}"))[0] == 404
    status, rows = await ask(api, reader, "GET", "/api/messages")
    assert (status, [row["message"] for row in rows]) == (200, ["theirs"])
    assert (await ask(api, reader, "GET", f"/api/events/{ids['theirs']}"))[0] == 200
    assert await ask(api, reader, "GET", f"/api/events/{ids['mine']}") == (
        404,
        {"error": "event not found"},
    )


async def live_through(api: Api, clock: Clock) -> int:
    """Fail once, then make a step, hand on and answer; a second between all. Returns the id."""
    await api.say("build", agent="coder", sender="Ada", messageId="m1")
    turn = await api.claim()
    clock.tick(seconds=1)
    failure = Retry("no network", None, "OSError", "Traceback …")
    await api.store.settle([(turn, failure)])
    clock.tick(seconds=1)
    turn = await api.claim()
    clock.tick(seconds=1)
    step = Step(key="ask", state="done", attempt=2, result="1", tokens=7, cost=0.5)
    await api.store.record(JournalEntry(turn=turn, steps=[step]))
    clock.tick(seconds=1)
    handed = NewEvent(event={"kind": "message", "message": "review"}, target="writer")
    answer = NewEvent(
        event={"kind": "response", "channel": "api", "message": "built", "agent": "coder"},
        queue=OUTBOX,
        target="api",
    )
    await api.store.settle([(turn, Done((handed, answer)))])
    return turn.primary.id


async def test_the_life_of_an_event_is_told_in_order(api: Api, clock: Clock) -> None:
    id_ = await live_through(api, clock)

    event = await api.get(f"/api/events/{id_}", "read")

    assert [entry["kind"] for entry in event["timeline"]] == [
        "received",
        "claimed",
        "failed",
        "claimed",
        "step",
        "handoff",
        "response",
        "completed",
    ]
    claimed, failed = event["timeline"][1:3]
    assert (claimed["attempt"], claimed["worker"]) == (1, "worker-1")
    assert (failed["error"], failed["traceback"]) == ("no network", "Traceback …")
    assert event["timeline"][4]["tokens"] == 7
    assert (event["messageId"], event["state"]) == ("m1", "completed")
    assert event["tree"]["id"] == id_
    [child] = event["tree"]["children"]
    assert (child["agent"], child["state"], child["message"]) == ("writer", "pending", "review")
    [response] = event["responses"]
    assert (response["message"], response["state"], response["parts"]) == ("built", "pending", [])
    assert event["raw"]["message"] == "build"
    assert event["actions"] == {
        "cancel": False,
        "retry": False,
        "discard": False,
        "replay": True,
        "needsAssume": False,
    }


async def test_receipts_of_responses_are_shown(api: Api) -> None:
    id_ = await api.respond("hi")
    turn = await api.claim(OUTBOX)
    parts = {"parts": {"k1": {"state": "sent", "receipt": {"ts": "1.2"}}}}
    await api.store.settle([(turn, Done(state=parts))])

    event = await api.get(f"/api/events/{id_}")

    assert (event["queue"], event["tree"]) == (OUTBOX, None)
    assert event["responses"] == [] or event["responses"][0]["id"] == id_


async def test_a_finished_event_is_replayed_and_a_live_one_is_not(api: Api) -> None:
    await api.say("again", agent="coder")
    turn = await api.claim()
    live = f"/api/events/{turn.primary.id}/replay"
    assert (await api.post(live))[0] == 409
    await api.store.settle([(turn, Done())])

    status, made = await api.post(live)

    assert (status, made["ok"]) == (200, True)
    assert (await api.get(f"/api/events/{made['id']}"))["message"] == "again"
    assert (await api.post("/api/events/4711/replay"))[0] == 404
    assert (await api.post(live, role="read"))[0] == 403
    [entry] = await api.store.audit_log(AuditFilter(action="replayed"))
    assert entry.actor == "api:admin"


async def test_unknown_and_odd_events_are_not_found(api: Api) -> None:
    for id_ in ("4711", "x", "-1", "99999999999999999999"):
        assert await api.ask("GET", f"/api/events/{id_}") == (404, {"error": "event not found"})


async def bury(api: Api, text: str, error: str, error_class: str = "Boom") -> None:
    await api.say(text, agent="coder")
    await api.store.settle([(await api.claim(), Dead(error, error_class))])


async def test_dead_letters_are_grouped_retried_and_discarded_together(api: Api) -> None:
    for number in (11, 12, 13):
        await bury(api, f"order {number}", f"order {number} failed")
    await bury(api, "deploy", "did it happen?", EFFECT_UNKNOWN)

    groups = await api.get("/api/dead/groups", "read")

    by_cause = {one["cause"]: one for one in groups}
    orders = by_cause["order … failed"]
    assert (orders["count"], orders["agent"], orders["note"]) == (3, "coder", None)
    assert by_cause["did it happen?"]["needsAssume"] is True
    dead_letters = await api.get(f"/api/queue/dead?group={orders['group']}&limit=2")
    assert [one["data"]["message"] for one in dead_letters] == ["order 13", "order 12"]
    rest = await api.get(
        f"/api/queue/dead?group={orders['group']}&before_id={dead_letters[-1]['id']}"
    )
    assert [one["data"]["message"] for one in rest] == ["order 11"]
    body = {"group": orders["group"], "dryRun": True}
    planned = await api.post("/api/dead/groups/retry", body)
    assert planned == (200, {"count": 3, "skipped": 0, "more": False, "dryRun": True})
    _, done = await api.post("/api/dead/groups/discard", {"ids": [dead_letters[0]["id"]]})
    assert (done["count"], done["dryRun"]) == (1, False)
    _, done = await api.post("/api/dead/groups/retry", {"all": True})
    assert (done["count"], done["skipped"]) == (2, 1)
    _, done = await api.post("/api/dead/groups/retry", {"queue": "inbox", "assume": "done"})
    assert done["count"] == 1
    assert await api.get("/api/dead/groups") == []


async def test_the_letters_of_a_group_are_followed_on(api: Api) -> None:
    for number in (11, 12, 13):
        await bury(api, f"order {number}", f"order {number} failed")
    [group] = await api.get("/api/dead/groups")
    path = f"/api/queue/dead?group={group['group']}"
    newest, middle, _ = await api.get(path)
    assert await api.get(f"{path}&since_id={middle['id']}") == [newest]


@pytest.mark.parametrize("retried", [[0], [1], [0, 1]])
async def test_a_letter_that_is_retried_meanwhile_does_not_end_paging(
    api: Api, retried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (11, 12, 13):
        await bury(api, f"order {number}", f"order {number} failed")
    [group] = await api.get("/api/dead/groups")
    dead_ids = DeadGroups.dead_ids

    async def retry_some(*args: Any, **options: Any) -> list[int]:
        ids = await dead_ids(*args, **options)
        monkeypatch.undo()
        await api.store.retry(Filter(ids=[ids[at] for at in retried]))
        return ids

    monkeypatch.setattr(DeadGroups, "dead_ids", retry_some)
    following, found = f"/api/queue/dead?group={group['group']}&limit=2", []
    while following:
        page, following = await api.page(following)
        found += [one["data"]["message"] for one in page]
    orders = ["order 13", "order 12", "order 11"]
    assert found == [order for at, order in enumerate(orders) if at not in retried]


async def test_a_note_is_for_all_operators(api: Api) -> None:
    await bury(api, "hello", "no")
    [group] = await api.get("/api/dead/groups")
    body = {"group": group["group"], "text": "Ada looks at it"}
    assert await api.post("/api/dead/groups/note", body) == (200, {"ok": True})
    [group] = await api.get("/api/dead/groups", "read")
    assert (group["note"]["text"], group["note"]["by"]) == ("Ada looks at it", "api:admin")
    assert (await api.post("/api/dead/groups/note", body | {"text": ""}))[0] == 200
    [group] = await api.get("/api/dead/groups")
    assert group["note"] is None
    unknown = {"group": "0" * 16, "text": "x"}
    assert await api.post("/api/dead/groups/note", unknown) == (404, {"error": "group not found"})


@pytest.mark.parametrize(
    "body",
    [{}, {"group": "../etc"}, {"ids": ["x"]}, {"assume": "perhaps", "all": True}, {"text": ""}],
)
async def test_a_selection_must_be_meant(api: Api, body: Any) -> None:
    await bury(api, "hello", "no")
    status, _ = await api.post("/api/dead/groups/retry", body)
    assert status == 400
    assert len(await api.get("/api/dead/groups")) == 1


async def test_only_admins_without_limits_change_groups(api: Api) -> None:
    bound = await create(api, "bound", "read", agents=["writer"])
    for path, body in (
        ("retry", {"all": True}),
        ("discard", {"all": True}),
        ("note", {"group": "0" * 16, "text": "x"}),
    ):
        assert (await api.post(f"/api/dead/groups/{path}", body, "send"))[0] == 403
        assert (await ask(api, bound, "POST", f"/api/dead/groups/{path}", body))[0] == 403
    assert (await ask(api, bound, "GET", "/api/dead/groups"))[0] == 403
    assert (await ask(api, bound, "GET", "/api/queue/dead?group=" + "0" * 16))[0] == 403
