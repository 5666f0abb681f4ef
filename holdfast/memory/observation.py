"""Observations: facts that agents learned about a subject, and the protocol of their store."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.memory.knowledge import KnowledgeDocument
from holdfast.message import USER as USER
from holdfast.queue.pages import Page
from holdfast.queue.record import Record
from holdfast.queue.store import Store, Transaction

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NAME = re.compile(r"[^:\s][^:]*")
_RANDOM_ID = re.compile(r"obs_[0-9a-f]{16}")
"""An id that an observation gets if none is given."""
_IDENTITY = re.compile(r"([^:]{0,100}):(?:id|name):(?=.)", re.DOTALL)
_MAX_CONFIDENCE = 0.99
MAX_LIMIT = 2**31 - 1


class ObservationType(StrEnum):
    """How an agent learned something."""

    EXPLICIT = "EXPLICIT"
    """Somebody said it."""
    DEDUCTIVE = "DEDUCTIVE"
    """It follows from other statements."""
    INDUCTIVE = "INDUCTIVE"
    """A pattern over several messages."""
    ABDUCTIVE = "ABDUCTIVE"
    """A guess: the likeliest explanation."""


_INITIAL_CONFIDENCE = {
    ObservationType.EXPLICIT: 0.9,
    ObservationType.DEDUCTIVE: 0.75,
    ObservationType.INDUCTIVE: 0.5,
    ObservationType.ABDUCTIVE: 0.3,
}


def subject_key(workspace_id: str, subject_type: str, subject_id: str) -> str:
    """Return the key of a subject: the lane of its changes, and its context in the index."""
    for name, part in (("workspace", workspace_id), ("subject type", subject_type)):
        if not _is_name(part) or not _NAME.fullmatch(part):
            raise HoldfastError(f"a {name} must be a text without colons, not {part!r}")
    if not _is_name(subject_id):
        raise HoldfastError(f"a subject needs an id, not {subject_id!r}")
    return f"{workspace_id}:{subject_type.upper()}:{subject_id}"


def _is_name(text: object) -> bool:
    """Return whether every engine stores a value unchanged as a name."""
    return (
        isinstance(text, str)
        and bool(text.strip())
        and "\0" not in text
        and not _LONE_SURROGATE.search(text)
    )


def is_identity(subject_id: str) -> bool:
    """Return whether the id of a person names a channel: `channel:id:…` or `channel:name:…`."""
    return _IDENTITY.match(subject_id) is not None


def is_person(subject: str, key: str) -> bool:
    """Return whether a key names this subject, as agent.is_person does in SQL.

    A key without a channel, such as default:USER:ann, names everybody with that id or name."""
    start, id_ = (
        key[: key.find(":USER:") + len(":USER:")],
        key[key.find(":USER:") + len(":USER:") :],
    )
    if subject == key or ":USER:" not in key or is_identity(id_) or not subject.startswith(start):
        return subject == key
    known = subject[len(start) :]
    return is_identity(known) and _IDENTITY.sub("", known, count=1) == id_


def own_conversation(subject_id: str) -> str:
    """Return the conversation named after an identity, as agent.own_conversation in SQL does."""
    return _IDENTITY.sub(r"\1:", subject_id, count=1)


def former_key(key: str) -> str | None:
    """Return the key that releases before 0.5 used for a person in a Slack workspace.

    A Slack workspace and a user id name one person. Other subjects without a channel are
    ambiguous; for them, returns None."""
    workspace, type_, id_ = parts_of(key)
    user = id_.removeprefix("slack:id:")
    return (
        f"{workspace}:{type_}:{user}"
        if type_ == USER and workspace != "default" and user != id_
        else None
    )


def parts_of(key: str) -> tuple[str, str, str]:
    """Split a key, as a person writes it, into workspace, type and id."""
    parts = key.split(":", 2)
    if len(parts) != 3 or not key.isprintable():
        raise HoldfastError(
            f"a subject must be workspace:TYPE:id, such as default:USER:api:id:ann, not {key!r}"
        )
    subject_key(*parts)
    return parts[0], parts[1].upper(), parts[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(Record):
    """One fact about a subject, as one observer sees it."""

    workspace_id: str
    subject_type: str
    subject_id: str
    content: str
    id: str = field(default_factory=lambda: f"obs_{secrets.token_hex(8)}")
    type: ObservationType = ObservationType.EXPLICIT
    observer: str = ""
    source_message_ids: tuple[str, ...] = ()
    version: int = 0
    """Grows with every change of any observation. The index never goes back to a lower one."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    deleted_at: datetime | None = None

    def __post_init__(self) -> None:
        subject_key(self.workspace_id, self.subject_type, self.subject_id)
        if not _is_name(self.id) or not str(self.content or "").strip():
            raise HoldfastError("an observation needs an id and content")
        object.__setattr__(self, "type", ObservationType(self.type))
        object.__setattr__(self, "subject_type", self.subject_type.upper())
        object.__setattr__(
            self, "source_message_ids", tuple(dict.fromkeys(self.source_message_ids))
        )

    @property
    def subject_key(self) -> str:
        return subject_key(self.workspace_id, self.subject_type, self.subject_id)

    @property
    def confidence(self) -> float:
        """Confidence by type; every further source halves the remaining doubt."""
        doubt = (1 - _INITIAL_CONFIDENCE[self.type]) * 0.5 ** max(
            len(self.source_message_ids) - 1, 0
        )
        return min(1 - doubt, _MAX_CONFIDENCE)


def id_of(observation: Observation | str) -> str:
    """Return the id of an observation that is given as an object or as its id."""
    return observation if isinstance(observation, str) else observation.id


def check_merge(
    winner: Observation | str, loser: Observation | str, merged: Observation
) -> tuple[str, str]:
    """Return the ids of the winner and the loser of a merge; refuse those that do not fit.

    The store checks whether both exist and are about that subject."""
    ids = id_of(winner), id_of(loser)
    if ids[0] == ids[1]:
        raise HoldfastError(f"observation {ids[0]!r} cannot be merged with itself")
    if merged.id != ids[0] and (merged.id == ids[1] or not _RANDOM_ID.fullmatch(merged.id)):
        problem = f"a merged observation keeps the winner's id {ids[0]!r}"
        raise HoldfastError(f"{problem}; {merged.id!r} is another")
    for one in (winner, loser):
        if isinstance(one, Observation) and one.subject_key != merged.subject_key:
            problem = f"observation {one.id!r} is about {one.subject_key}"
            raise HoldfastError(f"{problem}, not {merged.subject_key}")
    return ids


def check_limit(limit: int | None) -> int | None:
    """Return a limit, None for all; refuse numbers that some engine cannot count to."""
    if limit is not None and not 1 <= limit <= MAX_LIMIT:
        raise HoldfastError(f"a limit must be a number from 1 to {MAX_LIMIT}, not {limit}")
    return limit


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject of observations, and their number."""

    workspace_id: str
    type: str
    id: str
    observations: int

    @property
    def key(self) -> str:
        return subject_key(self.workspace_id, self.type, self.id)


def document_of(observation: Observation) -> KnowledgeDocument:
    """Return the document of an observation for the index."""
    return KnowledgeDocument(
        id=observation.id, content=observation.content, version=observation.version
    )


class ObservationStore(Protocol):
    """Store of observations.

    Every change writes its `memory` event in the same transaction, which may be the caller's own.
    A change returns a position; `wait_indexed` of that position gives read-your-writes."""

    @property
    def store(self) -> Store:
        """The store that holds the observations and their events."""

    async def save(self, observation: Observation, *, tx: Transaction | None = None) -> int:
        """Insert or replace an observation.

        If its subject changed, the relay removes it from the old subject's index."""

    async def delete(
        self, workspace_id: str, id: str, *, tx: Transaction | None = None
    ) -> int | None:
        """Delete an observation for good. Returns None if there is none."""

    async def soft_delete(
        self, workspace_id: str, id: str, *, tx: Transaction | None = None
    ) -> int | None:
        """Hide an observation until it is purged. Returns None if there is none."""

    async def merge(
        self,
        winner: Observation | str,
        loser: Observation | str,
        merged: Observation,
        *,
        tx: Transaction | None = None,
    ) -> int:
        """Merge two observations of a subject, given as observations or ids.

        The winner gets the merged content and the loser is soft-deleted. Refused if both are the
        same, if one does not exist, or if workspace or subject differ."""

    async def find_by_id(self, workspace_id: str, id: str) -> Observation | None:
        """Return an observation unless it is deleted."""

    async def find_by_ids(self, workspace_id: str, ids: Sequence[str]) -> list[Observation]:
        """Return the observations with these ids, without deleted ones."""

    async def find_by_subject(
        self, workspace_id: str, subject_type: str, subject_id: str, *, limit: int | None = None
    ) -> list[Observation]:
        """Return the observations about a subject, newest first, without deleted ones."""

    async def find_by_confidence_below(
        self, workspace_id: str, confidence: float, *, limit: int = 100
    ) -> list[Observation]:
        """Return the observations below a confidence, least certain first."""

    async def find_subjects(
        self,
        workspace_id: str | None = None,
        *,
        after: tuple[str, str, str] | None = None,
        limit: int | None = None,
        most_bytes: int | None = None,
    ) -> Page[Subject]:
        """List subjects with observations, by workspace, type and id; only those after `after`."""

    async def count(self, workspace_id: str | None = None) -> int:
        """Count observations, without deleted ones."""

    async def purge_soft_deleted_before(self, moment: datetime) -> int:
        """Remove observations that were soft-deleted before a moment. Returns their number."""

    async def delete_workspace(self, workspace_id: str) -> int:
        """Delete all observations of a workspace. Returns their number."""

    async def wait_indexed(self, position: int, *, within: float = 5.0) -> bool:
        """Wait until the change at this position is in the index.

        Returns False after `within` seconds."""

    async def has_pending(self, subject_key: str) -> bool:
        """Return whether changes of a subject are on their way to the index."""

    async def requeue_outdated(self, agent_name: str, model: str, *, limit: int = 1000) -> int:
        """Put a change for each document that another model indexed, once. Returns their number."""

    async def forget(
        self, workspace_id: str, subject_type: str, subject_id: str, *, actor: str | None = None
    ) -> dict[str, int]:
        """Remove every trace of a subject, also its messages. Returns the rows removed, by kind.

        An actor is recorded in the audit log, the subject there as a pseudonym."""
