"""`holdfast pairing`: list, approve and revoke."""

from __future__ import annotations

import asyncio

from holdfast.store import open_store
from holdfast.store.pairing import open_pairings, request_pairing
from tests.cli.shell import Shell


def ask(shell: Shell, sender_id: str, name: str) -> str:
    async def request() -> str:
        async with open_store(shell.environment["HOLDFAST_DATABASE"]) as store:
            found = await request_pairing(open_pairings(store), "telegram", sender_id, name)
        assert found is not None
        return str(found.code)

    return asyncio.run(request())


def test_a_stranger_is_listed_approved_and_revoked(shell: Shell) -> None:
    code = ask(shell, "4711", "Ada")
    assert shell.out("pairing", "list", "--approved") == "nobody was approved yet\n"
    [request] = shell.json("pairing", "list")
    assert list(request) == [
        *("code", "channel", "sender", "senderId", "requestedAt", "expiresAt"),
    ]
    assert request["expiresAt"] - request["requestedAt"] == 3_600_000
    assert (request["code"], request["sender"], request["senderId"]) == (code, "Ada", "4711")
    assert code in shell.out("pairing", "list")
    approved = shell.out("pairing", "approve", f"{code[:4].lower()}-{code[4:]}")
    assert approved == "approved Ada (4711) on telegram\n"
    assert shell.json("pairing", "list") == []
    assert shell.out("pairing", "list") == "nobody waits for approval\n"
    [person] = shell.json("pairing", "list", "--approved")
    assert person["senderId"] == "4711"
    assert person["approvedBy"].startswith("cli:")
    assert "Ada" in shell.out("pairing", "list", "--approved")
    assert shell.out("pairing", "revoke", "telegram", "4711") == "revoked 4711 on telegram\n"
    assert shell.refused("pairing", "revoke", "telegram", "4711") == (
        "holdfast: 4711 is not paired on telegram"
    )
    acts = [entry["action"] for entry in shell.json("audit")]
    assert acts == ["revoked", "approved"]


def test_an_unknown_code_is_refused_in_one_line(shell: Shell) -> None:
    ask(shell, "4711", "Ada")
    refusal = shell.refused("pairing", "approve", "AAAAAAAA")
    assert refusal.startswith("holdfast: there is no open request with the code AAAAAAAA")


def test_a_hostile_name_sends_no_control_characters_to_the_terminal(shell: Shell) -> None:
    ask(shell, "4711", "Eve\x1b[2J\u202e")
    assert "\x1b" not in shell.out("pairing", "list")
    assert "\u202e" not in shell.out("pairing", "list")
