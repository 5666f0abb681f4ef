"""Deletes a conversation on SQLite."""

from __future__ import annotations

from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from holdfast.queue.audit import AuditEntry
from holdfast.store.activity import FORGOTTEN
from holdfast.store.erase import ErasedRows
from holdfast.store.payload import dump
from holdfast.store.sqlite.access import SQL as ACCESS
from holdfast.store.sqlite.access import add_audit, pseudonym
from holdfast.store.sqlite.connection import load
from holdfast.store.sqlite.journal import erase_journals
from holdfast.store.sqlite.writer import Writing

if TYPE_CHECKING:
    from holdfast.store.sqlite.store import SqliteStore

SQL = load()


async def erase_conversation(
    store: SqliteStore, conversation: str, channel: str, lanes: list[str], actor: str
) -> ErasedRows:
    """Delete a conversation. See `holdfast.store.erase`."""
    params = {
        "conversation": conversation,
        "lane": f"{channel}/{conversation}",
        "lanes": dump(lanes),
    }
    # Finding all finished answers takes long. So read them before the transaction, which then only
    # has to look for later ones.
    answers, since = await store.read(lambda connection: _find_answers(connection, params))
    return await store.write(lambda db: _erase(db, params | {"since": since}, answers, actor))


def _find_answers(connection: Connection, params: dict[str, Any]) -> tuple[list[int], int]:
    """Return the ids of a conversation's responses, and the greatest id before that search."""
    [since] = connection.execute(SQL["greatest_id"]).fetchone()
    messages = {"ids": dump(_find(connection, params)), "since": 0}
    return _ids(connection, "answers_of", params | messages), since


def _find(connection: Connection, params: dict[str, Any]) -> list[int]:
    """Return the ids of the messages of a conversation, live and finished."""
    [agents] = connection.execute(SQL["known_agents"]).fetchone()
    ids = _ids(connection, "lines_of_conversation", params | {"agents": agents})
    ids += _ids(connection, "waiting_of_conversation", params)
    return sorted({*ids, *_ids(connection, "handed_on_of", {"ids": dump(ids)})})


def _ids(connection: Connection, query: str, params: dict[str, Any]) -> list[int]:
    return [id_ for (id_,) in connection.execute(SQL[query], params)]


def _erase(db: Writing, params: dict[str, Any], answers: list[int], actor: str) -> ErasedRows:
    run = db.connection.execute
    messages = _find(db.connection, params)
    late = _ids(db.connection, "answers_of", params | {"ids": dump(messages)})
    ids = {"ids": dump([*messages, *answers, *late])}
    gone = [*run(SQL["erase_events"], ids), *run(SQL["erase_history"], ids)]
    erase_journals(db, [id_ for id_, _ in gone])
    [agents] = run(SQL["known_agents"]).fetchone()
    lines = run(SQL["erase_conversation_lines"], params | {"agents": agents}).fetchall()
    _erase_frames(db, [*(name for _, name in gone), *(name for (name,) in lines)])
    files = [id_ for (id_,) in run(SQL["erase_conversation_files"], params)]
    for query in ("erase_versions", "erase_choice", "erase_conversation"):
        run(SQL[query], params)
    erased = ErasedRows(messages=len(messages), lines=len(lines), files=tuple(files))
    _audit(db, params["conversation"], erased, actor)
    return erased


def _audit(db: Writing, conversation: str, erased: ErasedRows, actor: str) -> None:
    subject = pseudonym(db.connection, conversation)
    add_audit(
        db,
        AuditEntry(
            actor=actor, action="conversation_deleted", subject=subject, details=erased.numbers
        ),
    )


def _erase_frames(db: Writing, names: list[str]) -> None:
    params = {"subject_key": None, "names": dump(names)}
    if db.connection.execute(ACCESS["forget_frames"], params).rowcount:
        # Makes readers drop their cached frames.
        db.frames.append([{"type": FORGOTTEN}])
