"""Three scripted agents that solve tasks by messages to each other and in a room.

Their answers do not depend on the order of the messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable

from holdfast.agents.base import Answer
from holdfast.agents.turn import Turn
from holdfast.app import AgentHarness
from holdfast.chat import ChatStore
from holdfast.queue.event import OUTBOX
from holdfast.queue.store import Filter
from holdfast.routing.router import Address
from holdfast.settings import Settings

TEAM = "builders"
AGENTS = ("lead", "ann", "bob")
ALL = 100_000


def script(turn: Turn) -> Answer:
    """Answer by the text of the turn alone; a batch gets the answers of its messages."""
    lines = [
        answer
        for asked, answer in SCRIPTS[turn.agent]
        for answer in _answers(asked, answer, turn.text)
    ]
    return "\n".join(lines) or None


def _answers(asked: str, answer: str, text: str) -> list[str]:
    return [answer.format(task) for task in re.findall(rf"{asked} (\w+)$", text, re.MULTILINE)]


SCRIPTS = {
    "lead": [
        ("^solve", "I shall. [@ann: first half of {0}] [@bob: second half of {0}]"),
        ("^done first half of", "[#builders: the first half is there of {0}]"),
        ("^the second half is there of", "[@ann: close {0}]"),
    ],
    "ann": [
        ("^first half of", "[@lead: done first half of {0}]"),
        ("^close", "Solved {0}."),
    ],
    "bob": [
        ("^second half of", "[#builders: the second half is there of {0}] Half of {0}."),
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


async def transcript(store: ChatStore) -> Counter[tuple[str, ...]]:
    """Count every text: in answers, in the room, and to each agent."""
    texts: Counter[tuple[str, ...]] = Counter()
    answers = await store.waiting(OUTBOX, "web", limit=ALL)
    texts.update((one.event["sender"], one.event["agent"], one.event["message"]) for one in answers)
    texts.update(
        ("room", line.from_agent, line.message)
        for line in await store.chat_messages(TEAM, limit=ALL)
    )
    for agent in AGENTS:
        lines = await store.agent_messages(agent, limit=ALL)
        texts.update(("to", agent, line.content) for line in lines if line.role == "user")
    return texts


async def is_inbox_empty(store: ChatStore) -> bool:
    return not any(count.queue == "inbox" for count in await store.counts())


async def dead_letter_errors(store: ChatStore) -> list[str | None]:
    return [dead.last_error for dead in await store.dead(Filter(), limit=ALL)]
