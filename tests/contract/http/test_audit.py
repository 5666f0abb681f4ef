"""The row on audit: an admin sees who did what by the API."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.limits import Limits
from holdfast.queue.audit import AuditEntry
from tests.contract.http.steps import Api

ANN = "default:USER:ann"


async def audit(api: Api, **query: Any) -> Any:
    status, found = await api.ask("GET", "/api/audit", params=query)
    assert status == 200, found
    return found


async def dead_letter(api: Api) -> int:
    await api.say()
    return await api.bury()


async def test_issue_13_17_acts_by_the_api_are_recorded_with_their_actor(api: Api) -> None:
    retried, discarded = await dead_letter(api), await dead_letter(api)
    await api.post(f"/api/queue/dead/{retried}/retry")
    await api.ask("DELETE", f"/api/queue/dead/{discarded}")
    killed = (await api.claim()).primary.id
    await api.post(f"/api/queue/processing/{killed}/kill")
    await api.ask("DELETE", f"/api/memory/{ANN}")
    waiting = await api.say()
    signalled = (await api.claim()).primary.id
    await api.post(f"/api/message/{waiting}/signal", {"name": "approval", "value": True})
    found = await audit(api)
    assert [(one["actor"], one["action"], one["subject"]) for one in found] == [
        ("api:admin", "signalled", f"event:{signalled}"),
        ("api:admin", "forgot", await api.store.pseudonym(ANN)),
        ("api:admin", "cancelled", f"event:{killed}"),
        ("api:admin", "discarded", f"event:{discarded}"),
        ("api:admin", "retried", f"event:{retried}"),
    ]
    assert {type(one["at"]) for one in found} == {int}


async def test_the_audit_log_is_paged_and_filtered(api: Api) -> None:
    for _ in range(3):
        await api.post(f"/api/queue/dead/{await dead_letter(api)}/retry")
    newest, middle, oldest = (one["id"] for one in await audit(api))
    assert [one["id"] for one in await audit(api, before_id=newest)] == [middle, oldest]
    assert [one["id"] for one in await audit(api, since_id=oldest)] == [newest, middle]
    assert [
        one["id"] for one in await audit(api, limit=1, action="retried", actor="api:admin")
    ] == [newest]
    assert await audit(api, action="forgot") == []
    assert await audit(api, actor="cli:root") == []
    at = (await audit(api))[0]["at"]
    assert await audit(api, since=at + 1) == []
    assert len(await audit(api, since=at)) >= 1


@pytest.mark.parametrize("limits", [Limits(page_bytes=100)])
async def test_a_page_of_the_audit_log_ends_at_a_number_of_bytes(api: Api, limits: Limits) -> None:
    for number in range(3):
        await api.store.audit(
            AuditEntry(actor="cli:" + "x" * 60, action="retried", subject=f"event:{number}")
        )
    newest, following = await api.page("/api/audit")
    assert [one["subject"] for one in newest] == ["event:2", "event:1"]
    oldest, _ = await api.page(following)
    assert [one["subject"] for one in oldest] == ["event:0"]


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 1001}, {"action": "danced"}, {"since": -1}, {"actor": ""}]
)
async def test_a_wrong_filter_is_refused(api: Api, query: dict[str, Any]) -> None:
    status, answer = await api.ask("GET", "/api/audit", params=query)
    assert (status, list(answer)) == (400, ["error"])


async def test_only_an_admin_sees_the_audit_log(api: Api) -> None:
    for role in ("read", "send"):
        status, _ = await api.ask("GET", "/api/audit", role=role)
        assert status == 403
