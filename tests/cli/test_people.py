"""`holdfast people`: link, list and unlink identities."""

from __future__ import annotations

from tests.cli.shell import Shell

ANN, SLACK = "default:USER:api:name:Ann", "T1:USER:slack:id:U1"


def test_people_are_linked_listed_and_unlinked(shell: Shell) -> None:
    assert shell.out("people", "list") == "nobody is remembered yet\n"
    assert shell.out("people", "link", ANN, SLACK) == f"linked {ANN} and {SLACK}\n"
    assert shell.out("people", "link", SLACK, ANN) == f"{SLACK} and {ANN} were linked already\n"
    assert shell.json("people", "list") == [
        {"person": 1, "identity": SLACK, "observations": 0},
        {"person": 1, "identity": ANN, "observations": 0},
    ]
    assert ANN in shell.out("people", "list")
    assert shell.out("people", "unlink", ANN) == f"unlinked {ANN}\n"
    assert shell.refused("people", "unlink", ANN) == f"holdfast: {ANN} is not linked"
    assert shell.json("people", "list") == []


def test_an_invalid_identity_is_refused_in_one_line(shell: Shell) -> None:
    assert "itself" in shell.refused("people", "link", ANN, ANN)
    assert "workspace:TYPE:id" in shell.refused("people", "link", ANN, "ann")
    assert "only people" in shell.refused("people", "link", ANN, "default:AGENT:coder")
