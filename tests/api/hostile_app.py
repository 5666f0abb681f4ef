"""The app of test_hostile.py: one agent echoes; another answers with the n-th hostile text."""

from __future__ import annotations

import os

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.agents.turn import Turn
from tests.api.inputs import Inputs

SEED = "HOSTILE_SEED"


async def parrot(turn: Turn) -> str:
    """Answer with the input of the number that the message names; echo anything else."""
    word = turn.text.split()[-1] if turn.text.split() else ""
    if not word.isdecimal():
        return turn.text
    return Inputs(os.environ[SEED], "replies", int(word[:9])).text()


app = AgentHarness(parrot, default="parrot")
app.agent("echo")(echo)
app.team("dev", agents=["parrot", "echo"], leader="parrot")
