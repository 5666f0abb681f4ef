"""The memory of a turn: relevant observations, search, and new observations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.memory.knowledge import (
    DEFAULT_AGENT_NAME,
    IndexUnavailable,
    KnowledgeScope,
    KnowledgeStore,
)
from holdfast.memory.observation import (
    USER,
    Observation,
    ObservationStore,
    ObservationType,
    former_key,
    parts_of,
    subject_key,
)
from holdfast.memory.people import People
from holdfast.memory.turn import Memory
from holdfast.message import Payload, person_of, workspace_of
from holdfast.queue.event import MEMORY, Event, NewEvent
from holdfast.queue.record import Record
from holdfast.settings.extras import needs
from holdfast.telemetry.redaction import redact_prose

AGENT = "AGENT"
CHARACTERS_PER_TOKEN = 4
MIN_SCORE = 0.2
"""Hits below this score have nothing to do with the message."""
INDEX_WAIT = timedelta(seconds=2)
"""Maximum wait, for each subject, until the observations of earlier turns are in the index."""
POLL_SECONDS = 0.02
"""Pause between two checks for changes that are on their way to the index."""


class RememberingTurn(Protocol):
    """The parts of an agent's turn that its memory needs."""

    agent: str
    memory: Memory
    records: list[Record]

    @property
    def primary(self) -> Event: ...

    @property
    def event(self) -> Payload: ...

    @property
    def text(self) -> str: ...

    @property
    def message_id(self) -> str | None: ...

    def emit(self, new: NewEvent) -> None: ...


@dataclass(frozen=True, slots=True)
class Recall:
    """Gives turns a memory."""

    observations: ObservationStore
    knowledge: KnowledgeStore
    people: People
    budget: int = 1000
    """Maximum number of tokens of relevant observations in a turn."""
    is_indexed: bool = True
    """Without an index, observations are stored, none is relevant, and a search is refused."""

    async def remind(self, turn: RememberingTurn) -> None:
        """Give the turn its memory, with the observations that are relevant to its text."""
        memory = TurnMemory(self, turn)
        turn.memory = memory
        if self.is_indexed:
            memory.relevant = self._within_budget(await memory.search(turn.text, max_results=20))

    def _within_budget(self, contents: Sequence[str]) -> list[str]:
        left = self.budget * CHARACTERS_PER_TOKEN
        kept = []
        for content in contents:
            left -= len(content)
            if left < 0:
                break
            kept.append(content)
        return kept


class TurnMemory:
    """The memory of one turn: about the sender of the message and about the agent itself."""

    def __init__(self, recall: Recall, turn: RememberingTurn) -> None:
        self.relevant: Sequence[str] = ()
        self._recall = recall
        self._turn = turn
        self._workspace = workspace_of(turn.event)
        self._person = person_of(turn.event)

    async def _people(self) -> list[str]:
        """Return the subjects of the sender: this identity, and those that are linked to it."""
        if not self._person:
            return []
        keys = await self._recall.people.identities(
            subject_key(self._workspace, USER, self._person)
        )
        # Releases before 0.5 observed under this subject in a Slack workspace.
        return [*keys, *(former for key in keys if (former := former_key(key)) is not None)]

    async def search(self, query: str, *, max_results: int = 5) -> list[str]:
        """Search for observations that relate to a question, best first.

        Raises HoldfastError if the packages of memory are not installed."""
        if not self._recall.is_indexed:
            raise HoldfastError(needs("memory", "searching in memory"))
        hits = []
        subjects = [*await self._people(), subject_key(self._workspace, AGENT, self._turn.agent)]
        for key in subjects:
            await self._wait_until_indexed(key)
            try:
                scope = KnowledgeScope(DEFAULT_AGENT_NAME, key)
                hits += await self._recall.knowledge.search(scope, query, max_results, MIN_SCORE)
            except IndexUnavailable:
                # An agent without its memory is better than no answer.
                continue
        return [hit.content for hit in sorted(hits, key=lambda hit: -hit.score)[:max_results]]

    async def _wait_until_indexed(self, key: str) -> None:
        """Wait a moment for changes of a subject that are on their way to the index."""
        until = asyncio.get_running_loop().time() + INDEX_WAIT.total_seconds()
        while await self._recall.observations.has_pending(key):
            if asyncio.get_running_loop().time() > until:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def recall(self, *, limit: int = 20) -> list[str]:
        """Return the newest observations about the sender."""
        found: list[Observation] = []
        for key in await self._people():
            found += await self._recall.observations.find_by_subject(*parts_of(key), limit=limit)
        found.sort(key=lambda observation: -observation.version)
        return [observation.content for observation in found[:limit]]

    def observe(
        self, content: str, *, about: str = USER, kind: ObservationType = ObservationType.EXPLICIT
    ) -> str:
        """Remember something about the sender or the agent itself.

        It is stored when the turn ends. Returns the observation's id."""
        subject_id = self._turn.agent if about.upper() == AGENT else self._person
        observation = Observation(
            workspace_id=self._workspace,
            subject_type=about,
            subject_id=subject_id,
            id=self._id(content),
            content=redact_prose(content),
            type=kind,
            observer=self._turn.agent,
            source_message_ids=(self._turn.message_id,) if self._turn.message_id else (),
        )
        self._turn.emit(_change(observation))
        self._turn.records.append(observation)
        return observation.id

    def _id(self, content: str) -> str:
        """Return an id that is the same in a repeated turn, so that nothing is stored twice."""
        source = f"{self._turn.primary.id}\n{self._turn.agent}\n{content}"
        return f"obs_{hashlib.sha256(source.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _change(observation: Observation) -> NewEvent:
    key = observation.subject_key
    return NewEvent(
        queue=MEMORY,
        lane=key,
        event={
            "kind": "memory",
            "workspace_id": observation.workspace_id,
            "observation_local_id": observation.id,
            "subject_key": key,
            "operation": "UPSERT",
        },
    )
