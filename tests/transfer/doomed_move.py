"""A move that kills its own process at a given step: SOURCE TARGET STEP COUNT."""

from __future__ import annotations

import os
import signal
import sys

from holdfast.store.transfer.move import move
from holdfast.store.transfer.postgres import PostgresDatabase
from holdfast.store.transfer.sqlite import SqliteDatabase


def main(source: str, target: str, step: str, count: str) -> None:
    seen: list[str] = []

    def watch(name: str, done: int, total: int) -> None:
        seen.append(name)
        if seen.count(step) == int(count):
            die()

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    for engine in (PostgresDatabase, SqliteDatabase):
        for name in ("lock", "mark_moved"):
            if step == name:
                setattr(engine, name, die)
    move(source, target, on_progress=watch, batch_rows=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
