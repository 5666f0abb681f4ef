"""Values of steps: types that are restored, and uses that are refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field

from holdfast import AgentHarness, StepError, Turn
from holdfast.agents import codec
from holdfast.agents.base import Answer
from holdfast.agents.call import LONGEST_NAME
from holdfast.queue.outcome import Retry
from holdfast.testing.trial import trial
from tests.agents.trials import Effects

AGAIN = Retry("again", timedelta(0))


class Invoice(BaseModel):
    number: int = Field(alias="No")
    due: datetime
    total: Decimal


@dataclass
class Point:
    x: int
    y: float


async def test_values_are_restored_as_the_annotated_type() -> None:
    due = datetime(2026, 5, 1, tzinfo=UTC)
    invoice = Invoice(No=1, due=due, total=Decimal("1.10"))

    async def one() -> Invoice:
        return invoice

    def many() -> dict[str, list[Point]]:
        return {"a": [Point(1, 2.5)]}

    async def moment() -> datetime | None:
        return due

    async def answer(turn: Turn) -> Answer:
        values = (
            await turn.step("one", one),
            await turn.step("many", many),
            await turn.step("moment", moment),
            await turn.step("point", Point, 1, y=2.0),
            await turn.step("plain", lambda: (1, {"a": None})),
        )
        seen.append(values)
        return AGAIN if turn.attempt == 1 else "done"

    seen: list[Any] = []
    async with trial(AgentHarness(answer)) as tried:
        await tried.ask("hi")
    # The first attempt sees the same types as the second, so that a mistake shows at once.
    assert seen[0] == seen[1]
    assert seen[1] == (invoice, {"a": [Point(1, 2.5)]}, due, Point(1, 2.0), [1, {"a": None}])


class Opaque:
    """A class that pydantic knows nothing about."""


def opaque() -> Opaque:
    return Opaque()


def misnamed() -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return None


def wrong() -> int:
    return "seven"  # type: ignore[return-value]


BAD: dict[str, tuple[Any, str]] = {
    "an object": (
        lambda turn: turn.step("s", object),
        "the result of step 's' cannot be stored",
    ),
    "an unknown return type": (
        lambda turn: turn.step("s", opaque),
        "step 's': opaque returns <class 'tests.agents.test_step_values.Opaque'>",
    ),
    "a return type that cannot be resolved": (
        lambda turn: turn.step("s", misnamed),
        "step 's': misnamed returns 'Nowhere', which cannot be resolved",
    ),
    "another type than annotated": (
        lambda turn: turn.step("s", wrong),
        "the result of step 's' cannot be stored",
    ),
    "a result over 1 MiB": (
        lambda turn: turn.step("s", lambda: "x" * codec.LARGEST_RESULT),
        "the result of step 's' has 1,048,578 bytes, more than 1,048,576;"
        " keep it in a file beside those of turn.files",
    ),
    "half a surrogate pair": (
        lambda turn: turn.step("s", lambda: "\ud800"),
        "the result of step 's' cannot be stored",
    ),
    "a name over 200 characters": (
        lambda turn: turn.step("n" * (LONGEST_NAME + 1), int),
        f"the name of step {'n' * 40 + '…'!r} has 201 characters, at most 200 are possible",
    ),
    "no name": (lambda turn: turn.step(" ", int), "a step needs a name, not ' '"),
    "a number as a name": (lambda turn: turn.step(7, int), "a step needs a name, not 7"),
    "a numbered name": (
        lambda turn: turn.step("pay#2", int),
        "the name of step 'pay#2' ends in # and digits, which number the uses of a name",
    ),
    "a name that cannot be stored": (
        lambda turn: turn.step("a\0b", int),
        "the name of step 'a\\x00b' has characters that cannot be stored",
    ),
    "no function": (lambda turn: turn.step("s", 7), "step 's' needs a function, not int"),
    "a step inside a step": (
        lambda turn: turn.step("outer", lambda: turn.step("inner", int)),
        "step 'inner' was called inside of step 'outer'",
    ),
    "an unknown effect": (
        lambda turn: turn.step("s", int, effect="twice"),
        "the effect of step 's' is \"repeatable\" or \"once\", not 'twice'",
    ),
    "a probe without once": (
        lambda turn: turn.step("s", int, probe=int),
        "step 's' has a probe, which needs effect=\"once\"",
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_bad_use_is_a_clear_error_and_nothing_is_lost(what: str) -> None:
    use, message = BAD[what]
    effects = Effects()

    async def answer(turn: Turn) -> Answer:
        await turn.step("before", effects.note, 1)
        try:
            await use(turn)
        except StepError as error:
            errors.append(str(error))
            return AGAIN if turn.attempt == 1 else "still here"
        return "no error"

    errors: list[str] = []
    async with trial(AgentHarness(answer)) as tried:
        assert await tried.ask("hi") == "still here"
    assert len(errors) == 2
    assert errors[0] == errors[1]
    assert errors[0].startswith(message)
    assert effects == [1]
