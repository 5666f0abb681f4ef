"""Forget a subject: erase observations, index, messages and files, under every identity."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.memory.knowledge import DEFAULT_AGENT_NAME, KnowledgeScope, KnowledgeStore
from holdfast.memory.observation import USER, ObservationStore, former_key, parts_of, subject_key
from holdfast.memory.people import People
from holdfast.store import files as stored_files
from holdfast.store.conversations import Conversations
from holdfast.store.memory import open_people
from holdfast.store.schedules import Schedules
from holdfast.store.uploads import Files, remove_uploads

UNATTRIBUTED = "unattributed_"
"""Prefix of counts of rows that name no person."""


async def forget(
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    workspace_id: str,
    subject_type: str,
    subject_id: str,
    *,
    actor: str | None = None,
    files: Path | None = None,
    vacuum: bool = False,
) -> dict[str, int]:
    """Remove every trace of a subject, also its files below the root `files`.

    Identities that are linked to a person are forgotten with it. Returns the number of rows
    removed, by kind; `unattributed_…` counts rows of earlier releases that name no person.
    On SQLite the bytes are gone from the database's files, too. On PostgreSQL a vacuum frees them:
    the server's own, or one at once with `vacuum`."""
    store = observations.store
    people = open_people(store)
    found = await find_identities(people, workspace_id, subject_type, subject_id)
    removed: dict[str, int] = {}
    for identity in found.all:
        counts = await _forget_identity(observations, knowledge, identity, actor, files)
        for kind, count in counts.items():
            # The count of rows without a person is the same for all identities.
            removed[kind] = count if kind.startswith(UNATTRIBUTED) else removed.get(kind, 0) + count
    # Links go last, so that a second run finds all identities if the first one was interrupted.
    # Only people can have been linked.
    for identity in found.all if subject_type.upper() == USER else ():
        await people.unlink(identity)
    await store.vacuum(at_once=vacuum)
    return removed


@dataclass(frozen=True, slots=True)
class Identities:
    """The subjects that `forget` removes for a named subject."""

    matching: list[str]
    """Identities with the id or name of a person who was named without a channel."""
    all: list[str]
    """The named subject, the matching ones, and those that are linked to any of them."""


async def find_identities(
    people: People, workspace_id: str, subject_type: str, subject_id: str
) -> Identities:
    """Return all subjects that `forget` removes for a subject.

    A person without a channel, such as default:USER:ann, means everybody with that id or name in
    the workspace."""
    key = subject_key(workspace_id, subject_type, subject_id)
    if subject_type.upper() != USER:
        return Identities([], [key])
    matching = await people.known_as(key)
    linked = [identity for one in (key, *matching) for identity in await people.identities(one)]
    former = filter(None, map(former_key, linked))
    return Identities(matching, list(dict.fromkeys([*linked, *former])))


async def _forget_identity(
    observations: ObservationStore,
    knowledge: KnowledgeStore,
    identity: str,
    actor: str | None,
    files: Path | None,
) -> dict[str, int]:
    removed = await observations.forget(*parts_of(identity), actor=actor)
    # A relay may have read the observations before. The index refuses what it writes late,
    # because clearing a scope leaves a tombstone with a newer version.
    removed["index"] = await knowledge.clear(KnowledgeScope(DEFAULT_AGENT_NAME, identity))
    removed["conversations"] = await Conversations(observations.store).forget(identity)
    removed["schedules"] = await Schedules(observations.store).forget(identity)
    stored = Files(observations.store)
    if files is None:
        await stored.forget(identity)
        return removed
    # Rows go last, so that a second run finds the uploads whose content could not be removed.
    uploads = await stored.uploads_of(identity)
    removed |= await asyncio.to_thread(_forget_files, files, identity, uploads)
    # Uploads may have been sent meanwhile.
    new = set(await stored.forget(identity)) - set(uploads)
    removed["files"] += await asyncio.to_thread(remove_uploads, files, new)
    return removed


def _forget_files(root: Path, subject: str, uploads: Sequence[str]) -> dict[str, int]:
    try:
        removed = stored_files.forget(root, subject) + remove_uploads(root, uploads)
        left = stored_files.count_unattributed(root)
    except OSError as error:
        raise HoldfastError(
            f"cannot remove a file below {root}: {error.strerror}; "
            "make it removable and forget the subject again"
        ) from error
    return {"files": removed} | ({f"{UNATTRIBUTED}files": left} if left else {})
