"""/api/schedules: roles, bodies, and each change."""

from __future__ import annotations

from typing import Any

from holdfast.testing.clock import Clock
from tests.contract.http.steps import Api

NEW = {
    "timing": "0 9 * * mon-fri",
    "zone": "Europe/Berlin",
    "agent": "writer",
    "message": "prepare the stand-up",
    "to": "slack:C123",
}


async def add(api: Api, **changed: Any) -> dict[str, Any]:
    status, added = await api.post("/api/schedules", NEW | changed)
    assert status == 200, added
    return dict(added)


async def test_a_schedule_is_added_listed_paused_resumed_and_removed(
    api: Api, clock: Clock
) -> None:
    added = await add(api)
    eight_utc = clock.now.replace(hour=8)
    assert added["nextAt"] == eight_utc.timestamp() * 1000, "nine in Berlin, on a Thursday"
    assert added | NEW == added
    assert (added["state"], added["missed"], added["source"]) == ("waiting", "once", "person")
    assert await api.get("/api/schedules", role="read") == [added]
    path = f"/api/schedules/{added['id']}"
    assert await api.post(f"{path}/pause") == (200, added | {"state": "paused"})
    assert await api.post(f"{path}/resume") == (200, added)
    assert await api.ask("DELETE", path) == (200, {"ok": True})
    assert await api.get("/api/schedules") == []


async def test_run_now_is_listed_with_its_answer(api: Api) -> None:
    added = await add(api, to=None)
    path = f"/api/schedules/{added['id']}"
    status, ran = await api.post(f"{path}/run")
    assert status == 200
    assert ran["messageId"].startswith(f"schedule_{added['id']}_")
    [run] = await api.get(f"{path}/runs", role="read")
    assert (run["messageId"], run["status"], run["answer"]) == (ran["messageId"], "pending", None)
    assert (await api.get(f"/api/events/{run['eventId']}"))["messageId"] == ran["messageId"]


async def test_changes_need_the_role_admin_and_lists_the_role_read(api: Api) -> None:
    added = await add(api)
    path = f"/api/schedules/{added['id']}"
    for role in ("read", "send"):
        assert (await api.post("/api/schedules", NEW, role=role))[0] == 403
        for change in ("pause", "resume", "run"):
            assert (await api.post(f"{path}/{change}", role=role))[0] == 403
        assert (await api.ask("DELETE", path, role=role))[0] == 403
    assert [one["id"] for one in await api.get("/api/schedules")] == [added["id"]]


async def test_wrong_bodies_are_400_and_unknown_names_404(api: Api) -> None:
    for wrong in ({"timing": "soon"}, {"zone": "Mars"}, {"to": "C1"}, {"missed": "never"}):
        assert (await api.post("/api/schedules", NEW | wrong))[0] == 400, wrong
    assert (await api.post("/api/schedules", NEW | {"message": " "}))[0] == 400
    assert (await api.post("/api/schedules", NEW | {"agent": "nobody"}))[0] == 404
    for change in ("pause", "resume", "run"):
        assert (await api.post(f"/api/schedules/nothing/{change}"))[0] == 404
    assert (await api.ask("GET", "/api/schedules/nothing/runs"))[0] == 404
    assert (await api.ask("DELETE", "/api/schedules/nothing"))[0] == 404


async def test_a_token_that_sees_its_own_messages_only_cannot_list_schedules(api: Api) -> None:
    await add(api)
    _, token = await api.post("/api/tokens", {"name": "ci", "role": "send"})
    headers = {"authorization": f"Bearer {token['token']}"}
    assert (await api.client.get("/api/schedules", headers=headers)).status_code == 403
