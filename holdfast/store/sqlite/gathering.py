"""Adding events to a turn that is held, in SQLite, within a transaction of the writer's."""

from __future__ import annotations

from holdfast.queue.event import Event, Turn
from holdfast.queue.store import COLLECT_BYTES
from holdfast.store.payload import dump, may_share_turn, parse
from holdfast.store.sqlite.leases import events, held, is_held
from holdfast.store.sqlite.queries import load
from holdfast.store.sqlite.writer import Writing

SQL = load()


def gather(db: Writing, turn: Turn, limit: int) -> list[Event]:
    """Add the untried events right behind a turn that may share it. Returns those that were added.

    Nothing joins a turn that is lost or was tried before."""
    head = turn.primary
    if head.lane is None or head.attempts != 1 or not is_held(turn, held(db.connection, [turn])):
        return []
    joining = _alike_behind(db, head, limit)
    if joining:
        params = {"id": head.id, "now": db.now, "ids": dump(joining)}
        db.connection.execute(SQL["join_turn"], params)
    return events(db.connection, joining)


def _alike_behind(db: Writing, head: Event, limit: int) -> list[int]:
    joining: list[int] = []
    left = COLLECT_BYTES
    params = {"id": head.id, "limit": limit - 1, "now": db.now}
    for id, fits, event, size, head_size in db.connection.execute(SQL["alike_behind"], params):
        left -= size
        if not fits or left < head_size or not _may_share(head, event):
            break
        joining.append(id)
    return joining


def _may_share(head: Event, event: str) -> bool:
    try:
        return may_share_turn(head.queue, head.event, parse(event))
    except ValueError:
        # It cannot be read, and is claimed alone.
        return False
