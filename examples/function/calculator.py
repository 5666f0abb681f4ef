"""An agent that is a Python function: a small calculator."""

from __future__ import annotations

import operator
from datetime import timedelta

from holdfast import AgentHarness, Dead, Retry, Turn

app = AgentHarness(default="calculator")

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@app.agent("calculator", name="Calculator", max_attempts=3)
async def calculator(turn: Turn) -> str | Retry | Dead:
    """Works "6 * 7"."""
    match turn.text.split():
        case [left, sign, right] if sign in OPERATIONS:
            try:
                return f"{turn.text} = {OPERATIONS[sign](float(left), float(right)):g}"
            except ZeroDivisionError:
                # Nobody can answer this: a dead letter at once, for a person to look at.
                return Dead("division by zero", "arithmetic")
        case ["flaky"] if turn.attempt == 1:
            # The first attempt fails; the queue comes back to it.
            return Retry("not in the mood", delay=timedelta(0))
    # An exception is a retry, too: float("six") would raise a ValueError here.
    return 'say something like "6 * 7"'
