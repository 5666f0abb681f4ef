"""Three scripted agents that solve tasks by messages to each other and in a room, whatever order these come in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable

from holdfast.agents.base import Answer
from holdfast.app import AgentHarness
from holdfast.queue.event import OUTBOX, Turn
from holdfast.queue.store import Filter, Store
from holdfast.routing.router import Address
from holdfast.settings import Settings

TEAM = "crew"
AGENTS = ("lead", "ann", "bob")
ALL = 100_000


def script(turn: Turn) -> Answer:
    """What an agent says depends on the words before it alone; a batch is answered as its messages would be."""
    lines = [
        answer
        for said, answer in SCRIPTS[turn.agent]
        for answer in _answers(said, answer, turn.text)
    ]
    return "\n".join(lines) or None


def _answers(said: str, answer: str, text: str) -> list[str]:
    return [answer.format(task) for task in re.findall(rf"{said} (\w+)$", text, re.MULTILINE)]


SCRIPTS = {
    "lead": [
        ("^solve", "I shall. [@ann: first half of {0}] [@bob: second half of {0}]"),
        ("^done first half of", "[#crew: the first half is there of {0}]"),
        ("^the second half is there of", "[@ann: close {0}]"),
    ],
    "ann": [
        ("^first half of", "[@lead: done first half of {0}]"),
        ("^close", "Solved {0}."),
    ],
    "bob": [
        ("^second half of", "[#crew: the second half is there of {0}] Half of {0}."),
    ],
}


def team_app(
    answer: Callable[[Turn], Answer | Awaitable[Answer]], settings: Settings | None = None
) -> AgentHarness:
    app = AgentHarness(default="lead", settings=settings)
    for agent in AGENTS:
        app.add(agent, answer)
    app.team(TEAM, agents=AGENTS, leader="lead")
    return app


def tasks(count: int) -> list[tuple[str, Address]]:
    return [
        (f"@{TEAM} solve t{n}", Address(channel="web", sender=f"user {n % 3}"))
        for n in range(count)
    ]


async def transcript(store: Store) -> Counter[tuple[str, ...]]:
    """Everything that was said: in answers, in the room, and to each agent."""
    said: Counter[tuple[str, ...]] = Counter()
    answers = await store.waiting(OUTBOX, "web", limit=ALL)
    said.update((one.event["sender"], one.event["agent"], one.event["message"]) for one in answers)
    said.update(
        ("room", line.from_agent, line.message)
        for line in await store.chat_messages(TEAM, limit=ALL)
    )
    for agent in AGENTS:
        lines = await store.agent_messages(agent, limit=ALL)
        said.update(("to", agent, line.content) for line in lines if line.role == "user")
    return said


async def is_over(store: Store) -> bool:
    return not any(count.queue == "inbox" for count in await store.counts())


async def letters(store: Store) -> list[str | None]:
    return [letter.last_error for letter in await store.dead(Filter(), limit=ALL)]
