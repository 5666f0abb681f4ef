"""Import the events of a Tiger Agent: its schema `agent`, live events and history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from psycopg import errors, sql

from holdfast.errors import HoldfastError, Unreadable
from holdfast.message import conversation_of
from holdfast.migrations.postgres import LOCK_KEY, Connection, connect
from holdfast.migrations.runner import create_schema
from holdfast.queue.event import payload_of
from holdfast.settings import sqlite_path
from holdfast.store.transfer.database import public_name
from holdfast.store.transfer.importing import ImportReport, Route, Rows, Writer, open_writer
from holdfast.store.transfer.importing_postgres import PostgresWriter
from holdfast.store.transfer.postgres import READ, clear_errors, is_same_database
from holdfast.store.transfer.values import fit_json

SCHEMA = "agent"
ASIDE = "tiger_agent"
FETCH = 2000
NOT_PROCESSED = "Tiger Agent recorded that this event was not processed"
NO_PAYLOAD = "the event had no payload in Tiger Agent"
CLASSICAL = {"id", "event_ts", "attempts", "vt", "claimed", "event"}

_COLUMNS = """
select table_name::text, column_name::text from information_schema.columns where table_schema = %s
"""
_OWN = """
select exists (select from agent.migration where file_name = '000-clock.sql')
"""


@dataclass(frozen=True, slots=True)
class TigerEvent:
    """A row of Tiger Agent; `processed` is None while it is live."""

    id: int
    event_ts: int
    attempts: int
    vt: int
    claimed: str
    event: str | None
    processed: bool | None

    @property
    def finished_at(self) -> int:
        """The time of the last claim, the closest to the end that Tiger Agent records."""
        last = self.claimed.strip("[]").rpartition(",")[2]
        return max(int(last) if last else self.event_ts, self.event_ts)


def import_tiger(
    source_url: str, target_url: str, route: Route, *, dry_run: bool = False
) -> ImportReport:
    """Carry over live events and history. Raises HoldfastError; then nothing was changed.

    If source and target are one database, the old schema is renamed in the same transaction."""
    if sqlite_path(source_url) is not None:
        raise HoldfastError("Tiger Agent lives in PostgreSQL: --from takes postgresql://…")
    is_same = sqlite_path(target_url) is None and is_same_database(source_url, target_url)
    source_name, target_name = public_name(source_url), public_name(target_url)
    report = ImportReport(source=source_name, target=target_name, dry_run=dry_run)
    with connect(source_url) as source, clear_errors():
        tables = _require_tiger(source)
        if dry_run:
            _count(source, tables, report)
        elif is_same:
            _replace(source, tables, route, report)
        else:
            _copy(source, tables, target_url, route, report)
    return report


def _replace(
    connection: Connection, tables: dict[str, set[str]], route: Route, report: ImportReport
) -> None:
    """Rename the schema aside and fill a new one, all in one transaction."""
    with connection.transaction():
        row = connection.execute("select pg_try_advisory_xact_lock(%s)", (LOCK_KEY,)).fetchone()
        if row != (True,):
            raise HoldfastError("another migration is running: try again when it has ended")
        aside = _free_name(connection)
        _rename(connection, aside)
        create_schema(connection)
        _import(connection, aside, tables, PostgresWriter(connection), route, report)
        report.kept = aside


def _rename(connection: Connection, aside: str) -> None:
    try:
        # Workers of Tiger Agent wait for this lock. Afterwards they call our functions of the same
        # names.
        connection.execute("lock table agent.event, agent.event_hist in access exclusive mode")
        rename = sql.SQL("alter schema agent rename to {}").format(sql.Identifier(aside))
        connection.execute(rename)
    except errors.InsufficientPrivilege as error:
        raise HoldfastError("schema agent belongs to another role: import as its owner") from error


def _copy(
    connection: Connection,
    tables: dict[str, set[str]],
    target_url: str,
    route: Route,
    report: ImportReport,
) -> None:
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        with open_writer(target_url) as writer:
            _import(connection, SCHEMA, tables, writer, route, report)
    report.kept = SCHEMA


def _import(
    connection: Connection,
    schema: str,
    tables: dict[str, set[str]],
    writer: Writer,
    route: Route,
    report: ImportReport,
) -> None:
    rows = Rows(writer, report)
    keeps_ids = writer.is_unused()
    seen: set[str] = set()
    last = 0
    for table in ("event_hist", "event"):
        for chunk in _read(connection, schema, table, tables[table]):
            _add(rows, chunk, keeps_ids, seen, route)
            last = max(last, *(event.id for event in chunk))
            rows.flush()
    if keeps_ids and last:
        writer.keep_ids(last)
    report.left = _count_others(connection, schema, tables)


def _add(
    rows: Rows, chunk: list[TigerEvent], keeps_ids: bool, seen: set[str], route: Route
) -> None:
    """Add events, except for those that were imported before."""
    names = [_message_id(event, seen) for event in chunk]
    known = rows.writer.find_known("inbox", names)
    for event, name in zip(chunk, names, strict=True):
        if name in known:
            rows.report.known += 1
            continue
        _add_event(rows, event, name, event.id if keeps_ids else rows.draw(), route)


def _message_id(event: TigerEvent, seen: set[str]) -> str:
    """Return a message id made of Slack's, or of the event's id if Slack's is missing or known."""
    payload = payload_of(event.event or "null")
    name = ""
    if not isinstance(payload, Unreadable) and payload.get("channel") and payload.get("ts"):
        parts = (payload.get("team"), payload["channel"], payload["ts"])
        name = "slack_" + "_".join(str(part) for part in parts if part is not None)
    if not name or name in seen:
        name = f"tiger_{event.id}"
    seen.add(name)
    return name


def _add_event(rows: Rows, event: TigerEvent, name: str, id_: int, route: Route) -> None:
    outcome, error = _outcome(event)
    values: dict[str, Any] = {
        "message_id": name,
        "event_ts": event.event_ts,
        "attempts": event.attempts,
        "claimed": event.claimed,
        "event": fit_json(event.event or "{}"),
        "created_at": event.event_ts,
        "updated_at": rows.now,
        "last_error": error,
        "finished_at": event.finished_at,
        # The waiting time counts from now on; otherwise old messages would expire at once.
        "vt": event.vt if outcome else max(event.vt, rows.now),
    }
    payload = payload_of(event.event or "null")
    if outcome is None and not isinstance(payload, Unreadable):
        values |= _lane(rows, event, payload, route)
    rows.add_event(id_, outcome, values)
    rows.report.count(outcome or "live")


def _outcome(event: TigerEvent) -> tuple[str | None, str | None]:
    if event.event is None and not event.processed:
        return "dead", NO_PAYLOAD
    if event.processed is None:
        return None, None
    return ("completed", None) if event.processed else ("dead", NOT_PROCESSED)


def _lane(rows: Rows, event: TigerEvent, payload: dict[str, Any], route: Route) -> dict[str, Any]:
    """Return lane, target and attempts of a live event.

    A postponed event gets no lane, so that it holds up no other."""
    is_put_off = event.attempts == 0 and event.vt > rows.now
    has_lane = bool(payload.get("channel") and payload.get("ts") and conversation_of(payload))
    new = route(payload, "")
    lane = new.lane if has_lane and not is_put_off else None
    return {"lane": lane, "target": new.target, "max_attempts": new.max_attempts}


def _read(
    connection: Connection, schema: str, table: str, columns: set[str]
) -> Iterator[list[TigerEvent]]:
    processed = "null::bool" if table == "event" else "true"
    if table == "event_hist" and "processed" in columns:
        processed = "processed"
    query = (
        f"select id, {READ['moment'].format('event_ts')}, attempts, {READ['moment'].format('vt')}"
        f", {READ['moments'].format('claimed')}, event::text, {processed}"
        f" from {schema}.{table} order by id"
    )
    with closing(connection.cursor(name="tiger")) as cursor:
        cursor.execute(query.encode())
        while rows := cursor.fetchmany(FETCH):
            yield [TigerEvent(*row) for row in rows]


def _require_tiger(connection: Connection) -> dict[str, set[str]]:
    """Return the columns of each table; refuse a schema that is not Tiger Agent's."""
    tables: dict[str, set[str]] = {}
    for table, column in connection.execute(_COLUMNS, (SCHEMA,)):
        tables.setdefault(str(table), set()).add(str(column))
    if not all(tables.get(name, set()) >= CLASSICAL for name in ("event", "event_hist")):
        raise HoldfastError(
            "there is no schema of Tiger Agent: no agent.event and agent.event_hist"
        )
    if "migration" in tables and connection.execute(_OWN).fetchone() == (True,):
        raise HoldfastError("schema agent is Holdfast's own: there is nothing to import")
    return tables


def _count(connection: Connection, tables: dict[str, set[str]], report: ImportReport) -> None:
    with connection.transaction():
        for table in ("event_hist", "event"):
            for chunk in _read(connection, SCHEMA, table, tables[table]):
                for event in chunk:
                    report.count(_outcome(event)[0] or "live")
        report.left = _count_others(connection, SCHEMA, tables)


def _count_others(
    connection: Connection, schema: str, tables: dict[str, set[str]]
) -> dict[str, int]:
    """Count the rows of tables that have no counterpart."""
    others = sorted(tables.keys() - {"event", "event_hist", "version", "migration"})
    counts = {}
    for name in others:
        query = sql.SQL("select count(*) from {}").format(sql.Identifier(schema, name))
        row = connection.execute(query).fetchone()
        counts[name] = int(row[0]) if row else 0
    return counts


def _free_name(connection: Connection) -> str:
    taken = {str(row[0]) for row in connection.execute("select nspname from pg_namespace")}
    names = (ASIDE, *(f"{ASIDE}_{number}" for number in range(2, 100)))
    return next(name for name in names if name not in taken)
