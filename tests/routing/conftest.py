"""A team on every store: agents whose answers a test scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import AgentHarness, Turn
from holdfast.agents.base import Answer
from holdfast.chat import ChatStore
from holdfast.testing.clock import Clock
from holdfast.testing.trial import Trial

Script = Callable[[Turn], Answer]


class Stage:
    """Agents with scripted replies. `received` has the agent and text of every turn."""

    def __init__(self) -> None:
        self.app = AgentHarness(default="coder")
        self.received: list[tuple[str, str]] = []
        self.scripts: dict[str, Script] = {}

    def add(self, *agents: str, **policy: Any) -> None:
        for agent in agents:
            self.app.add(agent, self._answer, **policy)

    async def _answer(self, turn: Turn) -> Answer:
        self.received.append((turn.agent, turn.text))
        script = self.scripts.get(turn.agent)
        return None if script is None else script(turn)

    def says(self, agent: str, *replies: Answer) -> None:
        """Script the replies of an agent, one per turn; then it stays silent."""
        waiting = list(replies)
        self.scripts[agent] = lambda turn: waiting.pop(0) if waiting else None


@pytest.fixture
def stage() -> Stage:
    """Return four agents in team dev (three) and team art (two)."""
    stage = Stage()
    stage.add("coder", "writer", "tester", "painter")
    stage.app.team("dev", agents=["coder", "writer", "tester"], leader="coder")
    stage.app.team("art", agents=["painter", "coder"], leader="painter")
    return stage


@pytest.fixture
def play(stage: Stage, store: ChatStore, clock: Clock, tmp_path: Path) -> Trial:
    return Trial(stage.app, store, clock, tmp_path / "files")
