"""`holdfast memory`: search, list, verify, reindex and forget."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

from holdfast.memory.observation import Observation
from holdfast.queue.event import MEMORY, NewEvent
from holdfast.queue.outcome import Dead
from holdfast.store import open_store
from holdfast.store.memory import open_observations
from tests.cli.shell import Shell, eventually

ANN = "default:USER:ann"
FACTS = {"tea": "Ann likes green tea", "bike": "Ann rides a bicycle to work"}


def remember(url: str, subject_id: str = "ann") -> None:
    """Save two observations about a person without indexing them."""

    async def save() -> None:
        async with open_store(url) as store:
            for id_, content in FACTS.items():
                observation = Observation(
                    workspace_id="default",
                    subject_type="USER",
                    subject_id=subject_id,
                    id=f"{id_}{'' if subject_id == 'ann' else subject_id}",
                    content=content,
                )
                await open_observations(store).save(observation)

    asyncio.run(save())


def poison(url: str) -> list[int]:
    """Make the next change a dead letter. Returns the ids of its events."""

    async def bury() -> list[int]:
        async with open_store(url) as store:
            [turn] = await store.claim(MEMORY, [""], limit=1, lease=timedelta(minutes=1))
            await store.settle([(turn, Dead("ValueError: no such dimension"))])
            return turn.ids

    return asyncio.run(bury())


def test_list_shows_subjects_and_observations(shell: Shell, url: str) -> None:
    assert shell.out("memory", "list") == "there are no observations yet\n"
    remember(url)
    assert ANN in shell.out("memory", "list")
    [ann] = shell.json("memory", "list")
    assert (ann["id"], ann["observations"]) == ("ann", 2)
    assert "green tea" in shell.out("memory", "list", ANN)
    assert [known["id"] for known in shell.json("memory", "list", ANN)] == ["bike", "tea"]
    assert shell.out("memory", "list", "default:USER:bob") == "there are no observations about it\n"


def test_a_limit_holds_for_subjects_and_the_rest_is_announced(shell: Shell, url: str) -> None:
    remember(url)
    remember(url, subject_id="bob")
    listed = shell.run("memory", "list", "--limit", "1", "--json")
    assert [one["id"] for one in json.loads(listed.stdout)] == ["ann"]
    assert "there are more subjects" in listed.stderr
    assert len(shell.json("memory", "list", "--limit", "2")) == 2


def test_verify_finds_missing_documents_and_reindex_adds_them(shell: Shell, url: str) -> None:
    assert shell.out("memory", "verify") == "the index matches the observations\n"
    remember(url)
    assert shell.out("memory", "search", ANN, "green tea") == "no observation matches\n"
    differing = shell.run("memory", "verify")
    assert (differing.returncode, differing.stdout.count("missing")) == (1, 2)
    assert shell.out("memory", "reindex") == "2 observations are indexed\n"
    assert shell.json("memory", "verify") == []
    [best, *_] = shell.json("memory", "search", ANN, "green tea")
    assert (best["id"], best["content"]) == ("tea", FACTS["tea"])
    assert "green tea" in shell.out("memory", "search", ANN, "green tea", "--limit", "1")
    assert shell.json("memory", "search", "default:user:bob", "green tea") == []


def test_forgetting_asks_first_and_counts_what_it_removed(shell: Shell, url: str) -> None:
    remember(url)
    shell.out("memory", "reindex")
    refused = shell.run("memory", "forget", ANN, given="n\n")
    assert (refused.returncode, len(shell.json("memory", "list", ANN))) == (1, 2)
    removed = shell.json("memory", "forget", ANN, "--yes")
    assert (removed["observations"], removed["index"], removed["events"]) == (2, 2, 2)
    assert shell.json("memory", "list") == []
    assert "observations" in shell.out("memory", "forget", ANN, "--yes")


def put_messages_of(url: str, *channels: str) -> None:
    """Store a message of ann on each channel."""

    async def put() -> None:
        async with open_store(url) as store:
            message = {"kind": "message", "message": "hi", "sender": "Ann", "sender_id": "ann"}
            await store.put(
                [NewEvent(event=message | {"channel": channel}) for channel in channels]
            )

    asyncio.run(put())


def test_forgetting_several_identities_names_them_and_needs_a_flag(shell: Shell, url: str) -> None:
    identities = ["default:USER:api:id:ann", "default:USER:web:id:ann"]
    put_messages_of(url, "api", "web")
    refused = shell.refused("memory", "forget", ANN, "--yes")
    assert "--all-identities" in refused
    assert all(identity in refused for identity in identities)
    asked = shell.run("memory", "forget", ANN, "--json", given="n\n")
    assert (asked.returncode, asked.stdout.strip()) == (1, "")
    assert [one for one in identities if one in asked.stderr] == identities
    assert "cannot be undone" in asked.stderr
    assert shell.json("status")["queues"][0]["ready"] == 2
    assert shell.json("memory", "forget", identities[1], "--yes")["events"] == 1
    put_messages_of(url, "mail")
    removed = shell.json("memory", "forget", ANN, "--yes", "--all-identities")
    assert removed["events"] == 2


def test_forgetting_on_postgresql_offers_a_vacuum(shell: Shell, url: str) -> None:
    """On SQLite the file is rewritten each time."""
    remember(url)
    offer = "`--vacuum` does so at once"
    assert (offer in shell.out("memory", "forget", ANN, "--yes")) == url.startswith("postgres")
    assert offer not in shell.out("memory", "forget", ANN, "--yes", "--vacuum")


def test_an_invalid_subject_is_one_clear_line(shell: Shell) -> None:
    for command in (("search", "ann", "tea"), ("list", "ann"), ("forget", "default:ann", "--yes")):
        assert "workspace:TYPE:id" in shell.refused("memory", *command)


def test_a_working_process_indexes_what_is_saved_and_status_shows_the_lag(
    shell: Shell, url: str
) -> None:
    remember(url)
    _, _, memory = shell.json("status")["queues"]
    assert (memory["queue"], memory["ready"], memory["queued"], memory["oldest"] is None) == (
        "memory",
        1,
        1,
        False,
    )
    with shell.running("work"):
        eventually(lambda: shell.run("memory", "verify").returncode == 0)
    _, _, memory = shell.json("status")["queues"]
    assert (memory["ready"], memory["finished"], memory["oldest"]) == (0, 2, None)


APP = """
from array import array
from holdfast import AgentHarness

class Embedder:
    model, dimensions = "alike", 2

    def embed(self, texts):
        return [array("f", (1.0, 0.0)).tobytes()] * len(texts)

app = AgentHarness(embedder=Embedder())

@app.agent("echo")
async def echo(turn):
    return turn.text
"""


def test_an_app_with_another_embedder_reindexes_everything(shell: Shell, url: str) -> None:
    remember(url)
    with shell.running("work"):
        eventually(lambda: shell.run("memory", "verify").returncode == 0)
    (shell.folder / "other.py").write_text(APP)
    with shell.running("work", "--app", "other:app"):
        eventually(lambda: "2 documents indexed with alike, 2 dimensions" in shell.out("doctor"))
        eventually(lambda: shell.json("status")["index"] is None)
    assert shell.run("memory", "verify").returncode == 0


def test_poison_is_listed_and_retried_like_any_dead_letter(shell: Shell, url: str) -> None:
    remember(url)
    [id_] = poison(url)
    assert "no such dimension" in shell.out("dead", "list", "--queue", "memory")
    assert [letter["id"] for letter in shell.json("dead", "list", "--queue", "memory")] == [id_]
    assert shell.json("dead", "list", "--queue", "inbox") == []
    assert shell.json("dead", "retry", "--queue", "memory") == [id_]
    with shell.running("work"):
        eventually(lambda: shell.run("memory", "verify").returncode == 0)
    assert shell.json("dead", "list") == []
