"""One use of a step: its name, its function, its arguments and its options."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic_core import to_json

from holdfast.agents.codec import Codec
from holdfast.errors import StepError
from holdfast.queue.journal import StepKind
from holdfast.store.journal import stored_text
from holdfast.telemetry.redaction import redact_start

Effect = Literal["repeatable", "once"]

LONGEST_NAME = 200
LONGEST_ARGUMENTS = 2000
"""Characters that are kept of the arguments of a once-step, for a person to read."""

_NUMBERED = re.compile(r"#([0-9]+)\Z")
_OPTIONS = "__holdfast_step__"


@dataclass(frozen=True, slots=True)
class StepOptions:
    """Options that `tool` and `app.step` attach to a function."""

    effect: Effect = "repeatable"
    probe: Callable[..., Any] | None = None


@dataclass(slots=True, kw_only=True)
class Call:
    """One use of a step: a function with its arguments, under the key of its result."""

    name: str
    number: int
    """Number of the use of the name in the turn, 1 for the first."""
    key: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: StepOptions
    codec: Codec
    arguments: str = ""
    """Arguments of a once-step for a person to read."""
    digest: str = ""
    tokens: int | None = None
    cost: float | None = None

    @property
    def kind(self) -> StepKind:
        return "once" if self.options.effect == "once" else "step"


RUNNING: ContextVar[Call | None] = ContextVar("running_step", default=None)
"""The step whose function runs here."""


def set_options(function: Callable[..., Any], options: StepOptions) -> None:
    """Attach options to a function, for `options_of`."""
    setattr(function, _OPTIONS, options)


def options_of(function: Callable[..., Any]) -> StepOptions | None:
    """Return the options that `tool` or `app.step` attached to a function."""
    return cast(StepOptions | None, getattr(function, _OPTIONS, None))


def key_of(name: str, number: int) -> str:
    """Return the key of a use of a name."""
    return name if number == 1 else f"{name}#{number}"


def use_of(key: str) -> tuple[str, int]:
    """Return the name and the number of the use that a key stands for."""
    numbered = _NUMBERED.search(key)
    return (key, 1) if numbered is None else (key[: numbered.start()], int(numbered[1]))


def check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise StepError(f"a step needs a name, not {name!r}")
    if len(name) > LONGEST_NAME:
        raise StepError(
            f"the name of step {name[:40] + '…'!r} has {len(name)} characters,"
            f" at most {LONGEST_NAME} are possible"
        )
    if _NUMBERED.search(name):
        raise StepError(
            f"the name of step {name!r} ends in # and digits, which number the uses of a name"
        )
    if stored_text(name) != name:
        raise StepError(f"the name of step {name!r} has characters that cannot be stored")


def check_options(key: str, options: StepOptions) -> StepOptions:
    if options.effect not in ("repeatable", "once"):
        raise StepError(
            f'the effect of step {key!r} is "repeatable" or "once", not {options.effect!r}'
        )
    if options.probe is not None and options.effect != "once":
        raise StepError(f'step {key!r} has a probe, which needs effect="once"')
    return options


def arguments_of(call: Call) -> tuple[str, str]:
    """Return the arguments of a call for a person to read, and the digest of all of them."""
    named = [dict(sorted(call.kwargs.items()))] if call.kwargs else []
    # The order of a set differs between processes.
    given = [
        sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        for value in (*call.args, *named)
    ]
    try:
        text = to_json(
            given, fallback=_describe, inf_nan_mode="constants", bytes_mode="base64"
        ).decode()
    except ValueError:
        # A text that no JSON can hold, or a list that contains itself.
        text = ascii(given)
    return redact_start(text, LONGEST_ARGUMENTS), hashlib.sha256(text.encode()).hexdigest()


def _describe(value: object) -> str:
    """Describe an argument that is not JSON, in the same words in every process."""
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


def name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", type(function).__qualname__)
