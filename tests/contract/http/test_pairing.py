"""Pairing by the API: for admins alone, with the acts in the audit log."""

from __future__ import annotations

from holdfast.queue.audit import AuditFilter
from holdfast.store.pairing import open_pairings, request_pairing
from tests.contract.http.steps import Api


async def ask(api: Api) -> str:
    found = await request_pairing(open_pairings(api.store), "telegram", "4711", "Ada")
    assert found is not None
    return str(found.code)


async def test_a_stranger_is_listed_approved_and_revoked(api: Api) -> None:
    code = await ask(api)
    [request] = await api.get("/api/pairing")
    assert (request["code"], request["channel"]) == (code, "telegram")
    assert (request["sender"], request["senderId"]) == ("Ada", "4711")
    assert request["expiresAt"] - request["requestedAt"] == 3_600_000
    status, person = await api.post("/api/pairing/approve", {"code": code.lower()})
    assert (status, person["ok"], person["senderId"]) == (200, True, "4711")
    assert await api.get("/api/pairing") == []
    [person] = await api.get("/api/pairing/approved")
    assert (person["senderId"], person["approvedBy"]) == ("4711", "api:admin")
    body = {"channel": "telegram", "senderId": "4711"}
    assert await api.post("/api/pairing/revoke", body) == (200, {"ok": True})
    assert await api.post("/api/pairing/revoke", body) == (404, {"error": "person not paired"})
    actions = [entry.action for entry in await api.store.audit_log(AuditFilter())]
    assert actions == ["revoked", "approved"]


async def test_an_unknown_code_is_not_found(api: Api) -> None:
    answer = await api.post("/api/pairing/approve", {"code": "AAAAAAAA"})
    assert answer == (404, {"error": "pairing code not found"})
    status, _ = await api.post("/api/pairing/approve", {})
    assert status == 400
