"""Records of the chat: versions of messages, files, and deleted conversations, on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.chat import AgentMessage, NewVersion, SentFiles
from holdfast.queue.event import NewEvent
from holdfast.queue.outcome import Done
from holdfast.queue.store import Store
from holdfast.store.conversations import Conversations
from holdfast.store.erase import erase_conversation
from holdfast.store.uploads import Files, StoredFile, new_file_id
from holdfast.testing.clock import Clock

CHAT = "web:ada"
LINE: dict[str, Any] = {"agent_id": "a", "channel": "web", "conversation": CHAT}


def version(new: str, original: str = "m1") -> NewVersion:
    return NewVersion(message_id=new, original=original, conversation=CHAT)


def line(name: str, role: str = "user") -> AgentMessage:
    return AgentMessage(role=role, sender="ada", message_id=name, content=name, **LINE)


async def texts(store: Store) -> list[str]:
    return [line.content for line in await Conversations(store).lines(CHAT)]


async def test_only_the_last_version_of_a_message_is_listed(store: Store) -> None:
    await store.put([], records=[line("m1"), line("other")])
    assert await texts(store) == ["other", "m1"]
    await store.put([], records=[line("m2"), version("m2")])
    assert await texts(store) == ["m2", "other"]
    await store.put([], records=[line("m3"), version("m3")])
    assert await texts(store) == ["m3", "other"]
    assert await Conversations(store).versions(["m2", "other"]) == {
        name: ["m1", "m2", "m3"] for name in ("m1", "m2", "m3")
    }


async def test_versions_that_come_at_once_leave_one_current(store: Store) -> None:
    await store.put([], records=[line("m1"), line("m2"), line("m3")])
    await store.put([], records=[version("m2"), version("m3")])
    assert await texts(store) == ["m3"]


async def test_a_file_is_given_to_the_message_of_its_owner_once(store: Store) -> None:
    files, now = Files(store), await store.now()
    mine, others = new_file_id(), new_file_id()
    for id_, owner in ((mine, ""), (others, "bob")):
        file = StoredFile(id=id_, owner=owner, name="a", type="text/plain", size=1, created_at=now)
        await files.add(file)
    for message in ("m1", "m2"):
        sent = SentFiles(
            ids=[mine, others], owner=None, message_id=message, conversation=CHAT, subject="s"
        )
        await store.put([], records=[sent])
    assert [(file.id, file.message_id) for file in await files.find([others, mine])] == [
        (others, None),
        (mine, "m1"),
    ]
    assert await files.unsent("bob") == (1, 1)
    assert await files.forget("s") == [mine]
    assert await files.prune(now + timedelta(seconds=1), None) == [others]


async def test_an_erased_conversation_frees_its_lane(store: Store, clock: Clock) -> None:
    def message(name: str, conversation: str) -> NewEvent:
        payload = {"kind": "message", "channel": "web", "conversation": conversation}
        return NewEvent(event=payload | {"message": name}, target="a", lane="a", message_id=name)

    await store.put([message("m1", CHAT), message("m2", "web:bob"), message("m3", CHAT)])
    [turn] = await store.claim("inbox", ["a"], limit=5, lease=timedelta(minutes=1))
    assert turn.primary.message_id == "m1"
    erased = await erase_conversation(store, CHAT, "web", ["a"], actor="test")
    assert erased.numbers == {"messages": 2, "lines": 0, "files": 0}
    # On SQLite, a deletion makes the next event visible from the machine's time on.
    clock.set(max(clock.now, datetime.now(UTC) + timedelta(minutes=5)))
    [turn] = await store.claim("inbox", ["a"], limit=5, lease=timedelta(minutes=1))
    assert turn.primary.message_id == "m2"
    await store.settle([(turn, Done())])
    assert await store.claim("inbox", ["a"], limit=5, lease=timedelta(minutes=1)) == []
    [again] = await store.put([message("m1", CHAT)])
    assert again is None, "its id stays known"
