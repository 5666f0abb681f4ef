"""Tokens of persons and programs: bound, revocable, and with role send blind to others."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from holdfast.agents.turn import Turn
from holdfast.api.limits import Limits
from holdfast.api.route import ROLE
from holdfast.api.routes.docs import document_of
from holdfast.api.security.bootstrap_tokens import ROLES, Role, digest_of
from holdfast.api.security.credentials import Grant, issue
from holdfast.channels.base import response_event
from holdfast.queue.event import INBOX, OUTBOX
from holdfast.queue.outcome import Done
from holdfast.queue.store import Filter
from holdfast.store.credentials import open_credentials
from holdfast.testing.clock import Clock
from tests.contract.http.steps import Api


@pytest.fixture
def limits() -> Limits:
    """Callers are not cached: the cache has its own clock, not the test's."""
    return Limits(quick_query=timedelta.max, caller_cache_seconds=0.0)


async def create(api: Api, name: str, role: str = "send", **rights: Any) -> str:
    status, made = await api.post("/api/tokens", {"name": name, "role": role, **rights})
    assert status == 200, made
    return str(made["token"])


async def ask(api: Api, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    answer = await api.client.request(
        method, path, json=body, headers={"authorization": f"Bearer {token}"}
    )
    is_json = answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json() if is_json else answer.text


async def seen(api: Api, token: str, path: str) -> Any:
    status, answer = await ask(api, token, "GET", path)
    assert status == 200, answer
    return answer


async def say(api: Api, token: str, text: str, **fields: Any) -> str:
    status, answer = await ask(api, token, "POST", "/api/message", {"message": text, **fields})
    assert status == 200, answer
    return str(answer["messageId"])


async def answer(api: Api) -> None:
    """The next message is answered."""
    leased = await api.claim()
    turn = Turn(leased, leased.primary.target or "coder")
    payload = {
        "kind": "response",
        "conversation": turn.conversation,
        "channel": turn.channel,
        "sender": turn.sender,
    }
    payload |= {
        "message": "yes",
        "original_message": turn.text,
        "agent": turn.agent,
    }
    await api.store.settle([(leased, Done((response_event(payload),)))])


async def test_a_token_is_created_listed_used_and_revoked(api: Api) -> None:
    secret = await create(
        api, "ci bot", channels=["api"], agents=["coder"], sender="CI", expires="30d"
    )
    assert re.fullmatch(r"hft_[\w-]{43}", secret)
    [token] = await api.get("/api/tokens")
    assert token["expiresAt"] - token["createdAt"] == 30 * 86_400_000
    assert (token["channels"], token["agents"], token["sender"]) == (["api"], ["coder"], "CI")
    assert (token["lastUsedAt"], token["expired"]) == (None, False)
    assert secret not in json.dumps(await api.get("/api/tokens")), "the secret is shown once"
    await seen(api, secret, "/api/session")
    assert (await api.get("/api/tokens"))[0]["lastUsedAt"] is not None
    assert await api.ask("DELETE", "/api/tokens/ci%20bot") == (200, {"ok": True})
    assert (await ask(api, secret, "GET", "/api/session"))[0] == 401
    assert await api.ask("DELETE", "/api/tokens/ci%20bot") == (404, {"error": "token not found"})
    assert await api.get("/api/tokens") == []


async def test_creating_and_revoking_are_in_the_audit_log(api: Api) -> None:
    await create(api, "ci")
    await api.ask("DELETE", "/api/tokens/ci")
    revoked, created = (await api.get("/api/audit"))[:2]
    assert (created["actor"], created["action"], created["subject"]) == (
        "api:admin",
        "token_created",
        "token:ci",
    )
    assert (revoked["actor"], revoked["action"], revoked["subject"]) == (
        "api:admin",
        "token_revoked",
        "token:ci",
    )
    boss = await create(api, "boss", "admin")
    await ask(api, boss, "DELETE", "/api/tokens/boss")
    assert (await api.get("/api/audit"))[0]["actor"] == "token:boss"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"role": "send"}, 400),
        ({"name": "", "role": "send"}, 400),
        ({"name": "a/b", "role": "send"}, 400),
        ({"name": "a", "role": "root"}, 400),
        ({"name": "a", "role": "admin", "channels": ["api"]}, 400),
        ({"name": "a", "role": "read", "sender": "Ada"}, 400),
        ({"name": "a", "role": "send", "channels": []}, 400),
        ({"name": "a", "role": "send", "channels": ["NO!"]}, 400),
        ({"name": "a", "role": "send", "agents": [""]}, 400),
        ({"name": "a", "role": "send", "expires": "soon"}, 400),
        ({"name": "a", "role": "send", "expires": 0}, 400),
        ({"name": "taken", "role": "send"}, 409),
    ],
    ids=str,
)
async def test_a_wrong_token_is_refused_with_a_line(api: Api, body: Any, status: int) -> None:
    await create(api, "taken")
    found, answer = await api.post("/api/tokens", body)
    assert (found, list(answer)) == (status, ["error"])
    assert len(await api.get("/api/tokens")) == 1


async def test_an_expired_token_and_its_sessions_are_refused(api: Api, clock: Clock) -> None:
    secret = await create(api, "ci", expires=60)
    [token] = await open_credentials(api.store).tokens()
    session, _ = await issue(api.store, "session", Grant.of(token), None)
    assert (await ask(api, secret, "GET", "/api/session"))[0] == 200
    clock.tick(seconds=60)
    assert (await ask(api, secret, "GET", "/api/session"))[0] == 401
    assert await open_credentials(api.store).find("session", digest_of(session)) is None
    assert [one["expired"] for one in await api.get("/api/tokens")] == [True]


LISTS = (
    "/api/responses",
    "/api/responses/pending?channel=api",
    "/api/queue/dead",
    "/api/queue/processing",
)
OTHERS = (
    "/metrics",
    "/api/chatroom/dev",
    "/api/memory/subjects",
    "/api/memory/search?subject=a:b:c&q=x",
)


async def test_issue_13_15_two_people_with_role_send_see_nothing_of_each_other(api: Api) -> None:
    ada, bob = await create(api, "ada"), await create(api, "bob")
    for token, name in ((ada, "Ada"), (bob, "Bob")):
        await say(api, token, f"answered {name}", sender=name)
        await answer(api)
        await say(api, token, f"dead {name}", sender=name)
        await api.bury()
        await say(api, token, f"working {name}", sender=name)
        await api.claim()
        response = {"channel": "api", "sender": name, "message": f"hi {name}"}
        await ask(api, token, "POST", "/api/responses", response)
    await api.say("nobody's", sender="Eve")
    for token, mine, other in ((ada, "Ada", "Bob"), (bob, "Bob", "Ada")):
        lists = [await seen(api, token, path) for path in LISTS]
        assert [len(found) for found in lists] == [2, 2, 1, 1]
        texts = json.dumps(lists)
        assert (mine in texts, other in texts) == (True, False)
        assert await seen(api, token, "/api/queue/status") == {
            "incoming": 0,
            "queued": 0,
            "pending": 0,
            "processing": 1,
            "completed": 1,
            "dead": 1,
            "outgoing": 2,
        }
        assert [one["processing"] for one in await seen(api, token, "/api/queue/agents")] == [1]
        assert await seen(api, token, "/api/agents/coder/messages") == []
        for path in OTHERS:
            assert (await ask(api, token, "GET", path))[0] == 403, path
    [foreign, *_] = await seen(api, bob, "/api/responses/pending?channel=api")
    ack = f"/api/responses/{foreign['id']}/ack"
    assert await ask(api, ada, "POST", ack) == (404, {"error": "response not found"})
    for _ in range(2):
        assert await ask(api, bob, "POST", ack) == (200, {"ok": True}), "idempotent"
    assert len(await seen(api, bob, "/api/responses/pending?channel=api")) == 1
    assert len(await seen(api, ada, "/api/responses/pending?channel=api")) == 2
    assert len(await api.get("/api/responses", "send")) == 4, (
        "the bootstrap token of role send sees all"
    )


async def test_a_page_of_a_list_holds_only_what_its_token_sees(api: Api) -> None:
    ada = await create(api, "ada")
    for number in range(6):
        token = ada if number % 2 else api.tokens["send"]
        body = {"channel": "api", "sender": "x", "message": str(number)}
        assert (await ask(api, token, "POST", "/api/responses", body))[0] == 200
    first, second = await seen(api, ada, "/api/responses?limit=2")
    assert [first["message"], second["message"]] == ["5", "3"]
    [last] = await seen(api, ada, f"/api/responses?limit=2&before_id={second['id']}")
    assert last["message"] == "1"
    assert [
        one["message"]
        for one in await seen(api, ada, f"/api/responses/pending?channel=api&since_id={last['id']}")
    ] == [
        "3",
        "5",
    ]


async def test_a_name_given_again_sees_nothing_of_before(api: Api) -> None:
    await say(api, await create(api, "ada"), "secret")
    await api.bury()
    await api.ask("DELETE", "/api/tokens/ada")
    assert await seen(api, await create(api, "ada"), "/api/queue/dead") == []


BOUND: list[tuple[dict[str, Any], str, dict[str, Any], int]] = [
    ({"sender": "Ada"}, "/api/message", {}, 200),
    ({"sender": "Ada"}, "/api/message", {"sender": "Ada"}, 200),
    ({"sender": "Ada"}, "/api/message", {"sender": "Bob"}, 403),
    ({"sender": "Ada"}, "/api/message", {"senderId": "U1"}, 403),
    ({"channels": ["web", "crm"]}, "/api/message", {"channel": "crm"}, 200),
    ({"channels": ["web", "crm"]}, "/api/message", {"channel": "api"}, 403),
    ({"channels": ["web"]}, "/api/message", {"channel": "chatroom"}, 403),
    ({"agents": ["writer"]}, "/api/message", {"agent": "Writer"}, 200),
    ({"agents": ["writer"]}, "/api/message", {"agent": "coder"}, 403),
    ({"agents": ["writer"]}, "/api/message", {"agent": "dev"}, 403),
    ({"agents": ["dev"]}, "/api/message", {"agent": "dev"}, 200),
    ({"agents": ["writer"]}, "/api/message", {"message": "@coder hi"}, 403),
    ({"agents": ["writer"]}, "/api/message", {"message": "@writer hi"}, 200),
    ({"sender": "Ada"}, "/api/responses", {"channel": "api", "sender": "Ada"}, 200),
    ({"sender": "Ada"}, "/api/responses", {"channel": "api", "sender": "Bob"}, 403),
    (
        {"sender": "Ada"},
        "/api/responses",
        {"channel": "api", "sender": "Ada", "senderId": "U1"},
        403,
    ),
    ({"channels": ["web"]}, "/api/responses", {"channel": "api", "sender": "Ada"}, 403),
    (
        {"agents": ["writer"]},
        "/api/responses",
        {"channel": "api", "sender": "Ada", "agent": "coder"},
        403,
    ),
    ({}, "/api/chatroom/dev", {}, 200),
    ({"agents": ["coder", "writer"]}, "/api/chatroom/dev", {}, 200),
    ({"agents": ["dev"]}, "/api/chatroom/dev", {}, 200),
    ({"agents": ["writer"]}, "/api/chatroom/dev", {}, 403),
    ({"channels": ["api"]}, "/api/chatroom/dev", {}, 403),
    ({"sender": "Ada"}, "/api/chatroom/dev", {}, 403),
]


@pytest.mark.parametrize(("rights", "path", "body", "status"), BOUND, ids=str)
async def test_what_a_token_is_bound_to_is_enforced(
    api: Api, rights: dict[str, Any], path: str, body: dict[str, Any], status: int
) -> None:
    token = await create(api, "bound", **rights)
    found, answer = await ask(api, token, "POST", path, {"message": "hi"} | body)
    assert found == status, answer
    stored = [*await api.store.recent(INBOX), *await api.store.recent(OUTBOX)]
    assert bool(stored) == (status == 200)
    assert len({event.sent_by for event in stored}) <= 1
    assert None not in {event.sent_by for event in stored}
    if status == 403:
        assert "'bound' may " in answer["error"]


async def test_without_a_choice_a_bound_token_speaks_as_what_it_is_bound_to(api: Api) -> None:
    token = await create(api, "bound", agents=["writer"], channels=["web"], sender="Ada")
    await say(api, token, "hi")
    # The bound agent answers, not the one chosen for the conversation: others could choose it.
    await say(api, token, "@coder")
    for event in await api.store.recent(INBOX):
        assert (event.target, event.event["channel"], event.event["sender"]) == (
            "writer",
            "web",
            "Ada",
        )


async def test_a_bound_reader_sees_everything_of_its_channels_and_agents_and_nothing_else(
    api: Api,
) -> None:
    for channel, agent in (("web", "writer"), ("web", "coder"), ("crm", "writer"), ("crm", None)):
        for how in ("answered", "dead"):
            given = {"agent": agent} if agent else {}
            await api.say(f"{channel} {agent} {how}", channel=channel, **given)
            await (api.bury() if how == "dead" else answer(api))
    of_web = await create(api, "web", "read", channels=["web"])
    of_writer = await create(api, "writer", "read", agents=["writer"])
    of_default = await create(api, "default", "read", agents=["coder"], channels=["crm"])
    for token, number, words in (
        (of_web, 2, "web"),
        (of_writer, 2, "writer"),
        (of_default, 1, "crm None"),
    ):
        for path in ("/api/responses", "/api/queue/dead"):
            found = await seen(api, token, path)
            texts = [
                one["originalMessage"] if "originalMessage" in one else one["data"]["message"]
                for one in found
            ]
            assert len(texts) == number
            assert all(words in text for text in texts), texts
        status = await seen(api, token, "/api/queue/status")
        assert (status["completed"], status["dead"]) == (number, number)
    assert set(await seen(api, of_writer, "/api/agents")) == {"writer"}
    assert await seen(api, of_writer, "/api/teams") == {}
    assert await seen(api, of_writer, "/api/agents/coder/messages") == []


FILLED = {
    "{id}": "0",
    "{kind}": "agent",
    "{name}": "nobody",
    "{subject}": "default:USER:nobody",
    "{team}": "dev",
}
QUERIES = {
    "/api/responses/pending": "?channel=api",
    "/api/memory/search": "?subject=default:USER:x&q=x",
    "/api/files": "?name=a.txt",
    "/api/observations": "?subject=default:USER:x",
}
LIMITED = {
    *("/metrics", "/api/chatroom/{team}", "/api/memory/search", "/api/memory/subjects"),
    *("/api/schedules", "/api/schedules/{id}/runs"),
    *("/api/overview", "/api/stats", "/api/agents/stats", "/api/dead/groups"),
    *("/api/memory/people", "/api/memory/status", "/api/observations"),
}
"""Routes whose rows have no sender, channel or agent: a limited token may not read them."""
OF_NO_SENDER = {"/api/pauses"}
"""Routes whose rows have a channel or an agent, but no sender: role send may not read them."""
STREAM = "/api/events/stream"


def is_hidden_from(role: str, path: str) -> bool:
    return path in LIMITED or (role == "send" and path in OF_NO_SENDER)


def expected(name: str, role: str, needed: Role, method: str, is_hidden: bool) -> set[int]:
    if not role:
        return {401}
    is_too_small = ROLES.index(role) < ROLES.index(needed)
    if is_too_small or (is_hidden and method == "get"):
        return {403}
    return {200, 403, 404} if name == "bound send" and method == "post" else {200, 400, 404, 409}


async def test_every_role_and_bound_token_on_every_route(api: Api) -> None:
    everything: dict[str, tuple[str, bool]] = {
        **{f"bootstrap {role}": (role, False) for role in ROLES},
        "read": ("read", False),
        "bound read": ("read", True),
        "send": ("send", True),
        "bound send": ("send", True),
        "admin": ("admin", False),
        "revoked": ("", False),
    }
    tokens = {f"bootstrap {role}": api.tokens[role] for role in ROLES}
    tokens["read"] = await create(api, "read", "read")
    tokens["bound read"] = await create(
        api, "bound read", "read", channels=["api"], agents=["coder"]
    )
    tokens["send"] = await create(api, "send")
    tokens["bound send"] = await create(
        api, "bound send", agents=["dev"], sender="Ada", channels=["api", "chatroom"]
    )
    tokens["admin"] = await create(api, "admin", "admin")
    tokens["revoked"] = await create(api, "revoked", "admin")
    await api.ask("DELETE", "/api/tokens/revoked")
    checked = set()
    for path, operations in document_of(api.app)["paths"].items():
        for method, operation in operations.items():
            needed = operation.get(ROLE)
            if needed is None or path == STREAM:
                continue
            content = (operation.get("requestBody") or {}).get("content", {})
            body = content.get("application/json", {}).get("example")
            if "application/octet-stream" in content:
                body = "a file"
            asked = re.sub(r"{\w+}", lambda name: FILLED[name[0]], path) + QUERIES.get(path, "")
            for name, (role, is_limited) in everything.items():
                found, answer = await ask(api, tokens[name], method.upper(), asked, body)
                is_hidden = is_limited and is_hidden_from(role, path)
                allowed = expected(name, role, needed, method, is_hidden)
                assert found in allowed, (name, method, path, answer)
                checked.add((name, method, path))
    assert len(checked) >= 9 * 24


async def test_a_replayed_message_is_still_its_senders(api: Api) -> None:
    ada = await create(api, "ada")
    await say(api, ada, "once more")
    letter = await api.bury()
    assert await api.store.retry(Filter(ids=[letter])) == [letter]
    await answer(api)
    assert [one["originalMessage"] for one in await seen(api, ada, "/api/responses")] == [
        "once more"
    ]


async def test_sessions_are_listed_and_ended(api: Api, clock: Clock) -> None:
    session, _ = await issue(api.store, "session", Grant(name="ada", role="read"), None)
    short, _ = await issue(
        api.store, "session", Grant(name="bob", role="read"), timedelta(minutes=1)
    )
    secret = await create(api, "ci")
    assert {one["name"] for one in await api.get("/api/sessions")} == {"ada", "bob"}
    clock.tick(minutes=2)
    [found] = await api.get("/api/sessions")
    assert (found["name"], found["role"], found["current"]) == ("ada", "read", False)
    assert session not in json.dumps(found), "no secret"
    [token] = await open_credentials(api.store).tokens()
    assert (await api.ask("DELETE", f"/api/sessions/{token.id}"))[0] == 404, "a token is no session"
    assert await api.ask("DELETE", f"/api/sessions/{found['id']}") == (200, {"ok": True})
    assert await open_credentials(api.store).find("session", digest_of(session)) is None
    assert await api.ask("DELETE", f"/api/sessions/{found['id']}") == (
        404,
        {"error": "session not found"},
    )
    entry = (await api.get("/api/audit"))[0]
    assert (entry["action"], entry["subject"]) == ("logged_out", found["id"])
    assert (await ask(api, secret, "GET", "/api/session"))[0] == 200
    assert short
