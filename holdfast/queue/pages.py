"""Pages of lists, limited by rows and by bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Row = TypeVar("Row", bound=Sequence[Any])

PAGE_BYTES = 4 * 1024 * 1024
"""Default size of a page; the row that reaches it is the last one."""


class PageOptions(TypedDict, total=False):
    """Options of the lists of a store."""

    limit: int
    before_id: int | None
    since_id: int | None
    most_bytes: int | None


class Page(list[T]):
    """Rows of a list. `has_more` is false only if the list surely ends with them."""

    has_more = False

    def map(self, make: Callable[[T], R]) -> Page[R]:
        """Return a page of the results of `make`."""
        page: Page[R] = Page(map(make, self))
        page.has_more = self.has_more
        return page


class Measure:
    """Counts rows and bytes until a page is full."""

    def __init__(self, limit: int, most_bytes: int | None) -> None:
        self._rows_left = limit
        self._bytes_left = most_bytes
        self._largest = 1

    @property
    def is_full(self) -> bool:
        """Whether rows or bytes are used up."""
        return self._rows_left <= 0 or (self._bytes_left is not None and self._bytes_left <= 0)

    def add(self, row: Sequence[Any]) -> None:
        """Count a row."""
        self._rows_left -= 1
        if self._bytes_left is not None:
            size = size_of(row)
            self._bytes_left -= size
            self._largest = max(self._largest, size)

    @property
    def rows_that_fit(self) -> int:
        """Number of rows to ask for next, assuming the largest size so far; at least one."""
        if self._bytes_left is None:
            return self._rows_left
        return max(1, min(self._rows_left, self._bytes_left // self._largest))

    def page(self, rows: Iterable[Row]) -> Page[Row]:
        """Take rows until the page is full. Reads no further rows from the database."""
        found: Page[Row] = Page()
        for row in rows if self._rows_left > 0 else ():
            found.append(row)
            self.add(row)
            if self.is_full:
                found.has_more = True
                break
        return found


def size_of(row: Sequence[Any]) -> int:
    """Return the bytes of all texts of a row; other values are small."""
    return sum(_bytes(value) for value in row if isinstance(value, str | bytes))


def _bytes(value: str | bytes) -> int:
    if isinstance(value, bytes) or value.isascii():
        return len(value)
    return len(value.encode("utf-8", "surrogatepass"))
