"""What an agent remembers in its turn: relevant observations, ways to look for more, and to observe."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

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
from holdfast.message import person_of, workspace_of
from holdfast.queue.event import MEMORY, NewEvent
from holdfast.settings.extras import needs
from holdfast.telemetry.redaction import redact_prose

if TYPE_CHECKING:
    from holdfast.agents.turn import Turn

AGENT = "AGENT"
CHARACTERS_PER_TOKEN = 4
LEAST_SCORE = 0.2
"""Below this a hit has nothing to do with the message."""
CURRENT_WITHIN = timedelta(seconds=2)
"""What was observed in the turn before is waited for this long."""
LOOK_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Recall:
    """Gives turns their memory."""

    observations: ObservationStore
    knowledge: KnowledgeStore
    people: People
    budget: int = 1000
    """Tokens that relevant observations may take in a turn."""
    is_indexed: bool = True
    """Without an index, observations are stored and nothing is relevant; a search is refused."""

    async def remind(self, turn: Turn) -> None:
        """From now on the turn knows what is relevant to its text, and can remember more."""
        memory = TurnMemory(self, turn)
        turn.memory = memory
        if self.is_indexed:
            memory.relevant = self._within_budget(await memory.search(turn.text, max_results=20))

    def _within_budget(self, found: Sequence[str]) -> list[str]:
        left = self.budget * CHARACTERS_PER_TOKEN
        kept = []
        for content in found:
            left -= len(content)
            if left < 0:
                break
            kept.append(content)
        return kept


class TurnMemory:
    """The memory of one turn: about the person who asks and about the agent itself."""

    def __init__(self, recall: Recall, turn: Turn) -> None:
        self.relevant: Sequence[str] = ()
        self._recall = recall
        self._turn = turn
        self._workspace = workspace_of(turn.event)
        self._person = person_of(turn.event)

    async def _people(self) -> list[str]:
        """The subjects of the person who asks: this identity, and those that are linked to it."""
        if not self._person:
            return []
        keys = await self._recall.people.identities(
            subject_key(self._workspace, USER, self._person)
        )
        # Releases before 0.5 observed under this subject in a Slack workspace.
        return [*keys, *(former for key in keys if (former := former_key(key)) is not None)]

    async def search(self, query: str, *, max_results: int = 5) -> list[str]:
        """Search for what bears on a question, best first. Refused if the packages of memory are not installed."""
        if not self._recall.is_indexed:
            raise HoldfastError(needs("memory", "searching in memory"))
        hits = []
        subjects = [*await self._people(), subject_key(self._workspace, AGENT, self._turn.agent)]
        for key in subjects:
            await self._become_current(key)
            try:
                scope = KnowledgeScope(DEFAULT_AGENT_NAME, key)
                hits += await self._recall.knowledge.search(scope, query, max_results, LEAST_SCORE)
            except IndexUnavailable:
                # An agent without its memory is better than none.
                continue
        return [hit.content for hit in sorted(hits, key=lambda hit: -hit.score)[:max_results]]

    async def _become_current(self, key: str) -> None:
        """Changes that are on their way to the index arrive first, if they do so soon."""
        until = asyncio.get_running_loop().time() + CURRENT_WITHIN.total_seconds()
        while await self._recall.observations.has_pending(key):
            if asyncio.get_running_loop().time() > until:
                return
            await asyncio.sleep(LOOK_EVERY)

    async def recall(self, *, limit: int = 20) -> list[str]:
        """What was observed last about the person who asks."""
        found: list[Observation] = []
        for key in await self._people():
            found += await self._recall.observations.find_by_subject(*parts_of(key), limit=limit)
        found.sort(key=lambda observation: -observation.version)
        return [observation.content for observation in found[:limit]]

    def observe(
        self, content: str, *, about: str = USER, kind: ObservationType = ObservationType.EXPLICIT
    ) -> str:
        """Remember something about the person who asks, or the agent itself; stored with the end of the turn."""
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
        self._turn.records.append(observation)
        self._turn.emit(_change(observation))
        return observation.id

    def _id(self, content: str) -> str:
        """The same in a repeated turn, so that it is not remembered twice."""
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
