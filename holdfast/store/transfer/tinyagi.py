"""Import the queue of a TinyAGI: messages, responses and histories of a SQLite file."""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.message import subject_of
from holdfast.migrations.script import one_line
from holdfast.store.payload import dump, storable
from holdfast.store.sqlite.rows import FIRST, LAST
from holdfast.store.transfer.database import public_name
from holdfast.store.transfer.importing import ImportReport, Route, Rows, open_writer
from holdfast.store.transfer.tables import BY_NAME

MAX_ATTEMPTS = 5
RESPONSE_ATTEMPTS = 10
MILLISECOND = 1000
MOST = 2**53
MOST_ATTEMPTS = 2**31 - 2
TOGETHER = 500
LIVE = ("pending", "queued", "processing")
NEEDED = {"message_id", "channel", "sender", "message", "status", "created_at"}
TABLES = ("messages", "responses", "chat_messages", "agent_messages")

ROOM_LINE = BY_NAME["chat_message"].without("id")
"""Lines of rooms draw new ids."""

Record = dict[str, Any]


def import_tinyagi(
    source: Path, target_url: str, route: Route, *, dry_run: bool = False
) -> ImportReport:
    """Carry over messages with their states, responses, and histories of agents and rooms.

    Raises HoldfastError; then nothing was changed. The file itself is never changed."""
    report = ImportReport(source=str(source), target=public_name(target_url), dry_run=dry_run)
    with closing(_open(source)) as connection:
        try:
            columns = _columns(connection, source)
            if dry_run:
                _count(connection, columns, report)
                return report
            with open_writer(target_url) as writer:
                _Import(Rows(writer, report), route).run(connection, columns)
        except sqlite3.Error as error:
            raise HoldfastError(f"{source} cannot be read: {one_line(error)}") from error
    return report


class _Import:
    """One import: rows of all tables in the order of their times, so that ids keep that order."""

    def __init__(self, rows: Rows, route: Route) -> None:
        self._rows = rows
        self._route = route
        self._messages: dict[str, tuple[int, bool]] = {}
        """Id of the event of each message, and whether it is live."""
        self._lined: set[int] = set()
        self._imported_before: set[str] = set()
        self._offset = rows.writer.line_offset()
        self._lines = rows.writer.find_lines()
        self._known: set[tuple[str, str]] = set()

    def run(self, connection: sqlite3.Connection, columns: dict[str, set[str]]) -> None:
        tables = [_read(connection, name) for name in TABLES if name in columns]
        records = heapq.merge(*tables, key=itemgetter(0))
        while together := list(islice(records, TOGETHER)):
            self._find_known([(name, record) for _, name, record in together])
            for _, name, record in together:
                self._add(name, record)
        self._rows.flush()

    def _find_known(self, records: list[tuple[str, Record]]) -> None:
        """Note the messages and responses among records that the target has already."""
        find = self._rows.writer.find_known
        messages = [str(one["message_id"]) for name, one in records if name == "messages"]
        responses = [_response_key(one) for name, one in records if name == "responses"]
        self._known = {
            *(("inbox", key) for key in find("inbox", messages)),
            *(("outbox", key) for key in find("outbox", responses)),
        }

    def _add(self, table: str, record: Record) -> None:
        match table:
            case "messages":
                self._add_message(record)
            case "responses":
                self._add_response(record)
            case "agent_messages":
                self._add_line(record)
            case _:
                self._add_chat(record)

    def _is_known(self, queue: str, key: str) -> bool:
        is_known = (queue, key) in self._known
        self._rows.report.known += is_known
        return is_known

    def _is_known_line(self, *values: Any) -> bool:
        is_known = values in self._lines
        self._rows.report.known += is_known
        return is_known

    def _add_message(self, record: Record) -> None:
        message_id = str(record["message_id"])
        if self._is_known("inbox", message_id):
            self._imported_before.add(message_id)
            return
        id_, outcome = self._rows.draw(), _message_outcome(record["status"])
        self._messages[message_id] = id_, outcome is None
        payload = {
            "kind": "message",
            "channel": record["channel"],
            "sender": record["sender"],
            "sender_id": record.get("sender_id"),
            "message": record["message"],
            "conversation": f"{record['channel']}:{record.get('sender_id') or record['sender']}",
        }
        if record.get("from_agent"):
            payload["from_agent"] = record["from_agent"]
        failed = min(_number(record.get("retry_count")), MOST_ATTEMPTS)
        values = self._times(record, outcome) | {
            "message_id": message_id,
            "event": dump(payload),
            "attempts": failed + (outcome == "completed"),
            "max_attempts": MAX_ATTEMPTS,
            "last_error": record.get("last_error") or _unknown_status(record["status"], LIVE),
        }
        values |= self._route_fields(payload, record.get("agent"))
        self._rows.add_event(id_, outcome, values)
        self._rows.report.count(f"messages {outcome or 'pending'}")

    def _route_fields(self, payload: Record, agent: str | None) -> dict[str, Any]:
        new = self._route(payload, agent)
        names = ("target", "lane", "routed_text", "routed_team")
        return {name: getattr(new, name) for name in names}

    def _add_response(self, record: Record) -> None:
        key = _response_key(record)
        if self._is_known("outbox", key):
            return
        outcome = _response_outcome(record["status"])
        conversation = f"{record['channel']}:{record.get('sender_id') or record['sender']}"
        names = ("channel", "sender", "sender_id", "message", "original_message", "message_id")
        payload = {
            "kind": "response",
            "conversation": conversation,
            **{name: record.get(name) for name in (*names, "agent")},
            **_parse_json(record, "files", list),
            **_parse_json(record, "metadata", dict),
        }
        parent = self._messages.get(str(record["message_id"]))
        values = self._times(record, outcome) | {
            "queue": "outbox",
            "target": record["channel"],
            "lane": f"{record['channel']}/{conversation}",
            "message_id": key,
            "event": dump(payload),
            "attempts": int(outcome == "completed"),
            "max_attempts": RESPONSE_ATTEMPTS,
            "parent_id": parent[0] if parent else None,
            "last_error": _unknown_status(record["status"], ("pending", "acked")),
        }
        self._rows.add_event(self._rows.draw(), outcome, values)
        self._rows.report.count(f"responses {_state_of(outcome)}")

    def _times(self, record: Record, outcome: str | None) -> dict[str, Any]:
        created = _moment(record["created_at"])
        ended = _moment(record.get("acked_at") or record.get("updated_at") or record["created_at"])
        return {
            "event_ts": created,
            "created_at": created,
            "updated_at": ended,
            "finished_at": ended,
            # The waiting time counts from now on; otherwise old messages would expire at once.
            "vt": self._rows.now if outcome is None else created,
        }

    def _add_line(self, record: Record) -> None:
        names = ("agent_id", "role", "message_id", "content")
        created_at = _moment(record["created_at"])
        if self._is_known_line(*(record[name] for name in names), created_at):
            return
        event_id, is_live = self._messages.get(str(record["message_id"]), (None, False))
        is_question = record["role"] == "user"
        if is_question and (is_live or record["message_id"] in self._imported_before):
            # A live message is its own line, even if an earlier import has stored it.
            return
        if not is_question or event_id is None or event_id in self._lined:
            event_id = self._rows.draw()
        self._lined.add(event_id)
        payload = {"kind": "message", "channel": record["channel"], "sender": record["sender"]}
        self._rows.add(
            BY_NAME["agent_message"],
            {name: record[name] for name in (*names, "channel", "sender")}
            | {
                "id": event_id + self._offset,
                "role": "user" if is_question else "assistant",
                "conversation": "",
                "origin": "",
                "subject": subject_of(payload) if is_question else "",
                "created_at": created_at,
            },
        )
        self._rows.report.count("lines of agents")

    def _add_chat(self, record: Record) -> None:
        names = ("team_id", "from_agent", "message")
        created_at = _moment(record["created_at"])
        if self._is_known_line(*(record[name] for name in names), created_at):
            return
        own = {"subject": "", "key": "", "created_at": created_at}
        self._rows.add(ROOM_LINE, {name: record[name] for name in names} | own)
        self._rows.report.count("lines of rooms")


def _message_outcome(status: Any) -> str | None:
    if status in LIVE:
        return None
    return "completed" if status == "completed" else "dead"


def _response_outcome(status: Any) -> str | None:
    return None if status == "pending" else "completed" if status == "acked" else "dead"


def _response_key(record: Record) -> str:
    return f"{record['message_id']}/tinyagi-{record['id']}"


def _state_of(outcome: str | None) -> str:
    return "acked" if outcome == "completed" else outcome or "pending"


def _unknown_status(status: Any, known: tuple[str, ...]) -> str | None:
    ends = (*known, "completed", "dead")
    return None if status in ends else f"imported with the unknown status {status!r}"


def _parse_json(record: Record, name: str, kind: type) -> Record:
    """Return a JSON column as a field of a payload, without one if it is empty.

    Text that is not JSON of this kind is wrapped in a list or an object."""
    text = record.get(name)
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        value = None
    wrapped = [str(text)] if kind is list else {"text": str(text)}
    return {name: value if isinstance(value, kind) else wrapped}


def _moment(milliseconds: Any) -> int:
    return max(FIRST, min(_number(milliseconds) * MILLISECOND, LAST - 1))


def _number(value: Any) -> int:
    is_number = isinstance(value, int | float) and 0 <= value < MOST
    return int(value) if is_number else 0


def _clean(record: Record) -> Record:
    """Replace characters that no engine can store, and missing texts by empty ones."""
    texts = ("channel", "sender", "message", "content", "agent_id", "team_id", "from_agent")
    cleaned = {name: storable(value) for name, value in record.items()}
    for name in texts:
        if name in cleaned and name != "from_agent":
            cleaned[name] = "" if cleaned[name] is None else str(cleaned[name])
    return cleaned


def _open(source: Path) -> sqlite3.Connection:
    if not source.is_file():
        raise HoldfastError(f"there is no file {source}")
    connection = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


def _columns(connection: sqlite3.Connection, source: Path) -> dict[str, set[str]]:
    """Return the columns of the tables that are there; refuse a file that is not TinyAGI's."""
    found = {
        name: {row[1] for row in connection.execute(f"pragma table_info({name})")}
        for name in TABLES
    }
    if connection.execute("select 1 from sqlite_master where name = 'event_hist'").fetchone():
        # It has a view named messages.
        raise HoldfastError(f"{source} is a database of Holdfast: use `holdfast move`")
    columns = {name: names for name, names in found.items() if names}
    if not columns.get("messages", set()) >= NEEDED:
        raise HoldfastError(f"{source} is not a database of TinyAGI: it has no table messages")
    return columns


def _read(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, str, Record]]:
    cursor = connection.execute(f"select * from {table} order by created_at, id")
    names = [description[0] for description in cursor.description]
    rank = TABLES.index(table)
    for row in cursor:
        record = dict(zip(names, row, strict=True))
        at = _number(record["created_at"]), rank, _number(record["id"])
        yield at, table, _clean(record)


def _count(
    connection: sqlite3.Connection, columns: dict[str, set[str]], report: ImportReport
) -> None:
    """Count rows by what they would become."""
    for status, number in connection.execute("select status, count(*) from messages group by 1"):
        report.count(f"messages {_message_outcome(status) or 'pending'}", number)
    if "responses" in columns:
        for status, number in connection.execute(
            "select status, count(*) from responses group by 1"
        ):
            report.count(f"responses {_state_of(_response_outcome(status))}", number)
    for table, name in (("agent_messages", "agents"), ("chat_messages", "rooms")):
        if table in columns:
            [number] = connection.execute(f"select count(*) from {table}").fetchone()
            report.count(f"lines of {name}", number)
