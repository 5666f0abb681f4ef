"""Values of rows: what PostgreSQL can hold, and what two databases compare by."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Callable, Sequence
from decimal import Decimal
from hashlib import blake2b, md5
from typing import Any, NoReturn
from uuid import UUID

from holdfast.memory.knowledge import storable_text
from holdfast.store.payload import storable
from holdfast.store.sqlite.rows import FIRST, LAST
from holdfast.store.transfer.tables import Kind, Table

Row = tuple[Any, ...]

INT4_MOST = 2**31 - 1
INT8_MOST = 2**63 - 1
MOST_DIGITS = 4000
"""Numbers with more digits are kept as texts; Python and PostgreSQL would refuse them."""
FLOAT_BYTES = 4
LONE_ESCAPE = len("\\u0000")

# A pair of surrogates, one escaped code unit, or any other escape: each is read as a whole.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\."
)
_CHECKED = {"max_attempts": (1, INT4_MOST), "hops": (0, 1_000_000), "fence": (0, INT8_MOST)}
_HALVES = frozenset(("d8", "d9", "da", "db", "dc", "dd", "de", "df"))


class Fitter:
    """Changes rows of SQLite into rows that PostgreSQL can hold, and counts changed values.

    A person may have written anything by hand: NUL in texts, text that is not JSON, moments out of
    range. Each such value becomes the nearest one that can be stored."""

    def __init__(self) -> None:
        self.replaced = 0

    def fit(self, table: Table, row: Row) -> Row:
        fitted = tuple(
            None if value is None else self._fit(column.kind, value)
            for column, value in zip(table.columns, row, strict=True)
        )
        return _within_checks(table, fitted)

    def _fit(self, kind: Kind, value: Any) -> Any:
        fitted = _FITS[kind](value)
        if fitted != value:
            self.replaced += 1
        return fitted


def _within_checks(table: Table, row: Row) -> Row:
    """Bound the numbers of a live event, which PostgreSQL checks."""
    if table.name != "event":
        return row
    values = dict(zip(table.names, row, strict=True))
    for name, (least, most) in _CHECKED.items():
        if values[name] is not None:
            values[name] = max(least, min(values[name], most))
    return tuple(values.values())


def _fit_text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return storable_text(text) if "\0" in text else text


def _fit_int(value: Any, most: int = INT8_MOST) -> int:
    number = value if isinstance(value, int) else 0
    return max(-most, min(number, most))


def _fit_int4(value: Any) -> int:
    return max(0, _fit_int(value, INT4_MOST))


def _fit_moment(value: Any) -> int:
    return max(FIRST, min(_fit_int(value), LAST - 1))


def _fit_moments(value: Any) -> str:
    """Return the claims of an event as a JSON array of moments."""
    if value == "[]":
        return "[]"
    parsed = parse_json(_fit_text(value))
    moments = parsed if isinstance(parsed, list) else []
    kept = [_fit_moment(one) for one in moments if isinstance(one, int)]
    return json.dumps(kept, separators=(",", ":"))


def _fit_texts(value: Any) -> str:
    parsed = parse_json(_fit_text(value))
    texts = parsed if isinstance(parsed, list) else []
    return _dump([storable(one) for one in texts if isinstance(one, str)])


def _fit_frames(value: Any) -> str:
    """Keep JSON as it was written; anything else becomes a JSON string."""
    text = str(value)
    return text if is_json(text) else _dump(storable_text(text))


def fit_json(value: Any) -> str:
    """Return JSON that PostgreSQL can hold: without NUL and halves of surrogate pairs."""
    text = _fit_frames(value)
    return _ESCAPE.sub(_storable_escape, text) if "\\u" in text else text


def _storable_escape(match: re.Match[str]) -> str:
    escape = match[0]
    is_bad = len(escape) == LONE_ESCAPE and (escape[2:] == "0000" or escape[2:4].lower() in _HALVES)
    return "\\ufffd" if is_bad else escape


def _fit_uuid(value: Any) -> str:
    try:
        return str(UUID(value))
    except (ValueError, AttributeError, TypeError):
        return str(UUID(bytes=md5(str(value).encode(), usedforsecurity=False).digest()))


def _fit_vector(value: Any) -> bytes | None:
    if not isinstance(value, bytes) or not value or len(value) % FLOAT_BYTES:
        return None
    return value if all(map(math.isfinite, array("f", value))) else None


def _fit_real(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _fit_flag(value: Any) -> int:
    return 1 if value else 0


_FITS: dict[Kind, Callable[[Any], Any]] = {
    "int": _fit_int,
    "int4": _fit_int4,
    "flag": _fit_flag,
    "real": _fit_real,
    "text": _fit_text,
    "uuid": _fit_uuid,
    "moment": _fit_moment,
    "moments": _fit_moments,
    "json": fit_json,
    "frames": _fit_frames,
    "texts": _fit_texts,
    "vector": _fit_vector,
}


def canonical_json(text: str) -> str:
    """Return JSON in one form for equal values; text that is not JSON as a JSON string."""
    try:
        return _dump(parse_json(text, strict=True))
    except (ValueError, RecursionError):
        return _dump(text)


def is_json(text: str) -> bool:
    try:
        parse_json(text, strict=True)
    except (ValueError, RecursionError):
        return False
    return True


def parse_json(text: str, *, strict: bool = False) -> Any:
    """Parse JSON; fractions become texts that name them exactly.

    Invalid text is None, with `strict` an error."""
    try:
        return json.loads(text, parse_float=_fraction, parse_int=_integer, parse_constant=_refuse)
    except (ValueError, RecursionError):
        if strict:
            raise
        return None


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError("a number has too many digits")
    return int(text)


def _fraction(text: str) -> int | str:
    """Return 15e-1 and 1.50 alike, and 1.0 like 1."""
    number = Decimal(text)
    if len(text) > MOST_DIGITS or abs(number.adjusted()) > MOST_DIGITS:
        raise ValueError("a number has too many digits")
    is_whole = number == number.to_integral_value()
    return int(number) if is_whole else f"\1{number.normalize()}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


class Digest:
    """The number of rows, and a hash of them that does not depend on their order."""

    def __init__(self, table: Table, *, canonical: bool) -> None:
        kinds = [column.kind for column in table.columns]
        self._json = [at for at, kind in enumerate(kinds) if kind in ("json", "texts")]
        self._canonical = canonical
        self.rows = 0
        self._sum = 0

    def add(self, row: Row) -> None:
        if self._canonical and self._json:
            row = self._with_canonical_json(row)
        digest = blake2b(repr(row).encode(errors="surrogatepass"), digest_size=16).digest()
        self._sum += int.from_bytes(digest)
        self.rows += 1

    def _with_canonical_json(self, row: Row) -> Row:
        values = list(row)
        for at in self._json:
            if values[at] is not None:
                values[at] = canonical_json(values[at])
        return tuple(values)

    @property
    def hash(self) -> str:
        return f"{self._sum % 2**128:032x}"


def size_of(row: Sequence[Any]) -> int:
    """Estimate the bytes of a row."""
    return 8 * len(row) + sum(len(value) for value in row if isinstance(value, str | bytes))
