"""The tables that a move carries, column by column, in the form in which SQLite holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "int", "int4", "flag", "real", "text", "uuid", "moment", "moments", "json", "frames", "texts",
    "vector",
]  # fmt: skip
"""How the engines hold a column. A moment is microseconds since 1970, `moments` and `texts` are
JSON arrays, `frames` is JSON that PostgreSQL keeps as it was written, `vector` is 32-bit floats."""

STATE_KEYS = "move/"
"""Settings with these keys describe a move itself, and stay behind."""

SUMS = "statistics"
"""The setting that says how far history is added up. Like the sums themselves, it stays behind."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `postgres` is its name on PostgreSQL."""

    name: str
    kind: Kind
    postgres: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table and the key by which its rows are read in order."""

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    where: str = "true"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)

    def without(self, name: str) -> Table:
        """Return the table without a column that one of the databases does not have."""
        columns = tuple(column for column in self.columns if column.name != name)
        return Table(self.name, self.key, columns, self.where)


def _columns(text: str) -> tuple[Column, ...]:
    """Parse `kind: name name … kind: name …`; `name=other` gives the name on PostgreSQL."""
    columns: list[Column] = []
    kind: Kind = "text"
    for word in text.split():
        if word.endswith(":"):
            kind = word[:-1]  # type: ignore[assignment]
        else:
            name, _, postgres = word.partition("=")
            columns.append(Column(name, kind, postgres or name))
    return tuple(columns)


_EVENT = """
int: id text: queue target lane flag: head moment: event_ts int4: attempts moment: vt
moments: claimed json: event int: fence text: holder message_id int4: max_attempts
int: parent_id root_id int4: hops json: state text: last_error error_class
moment: created_at updated_at text: sent_by traceback routed_text routed_team
"""
_SPECIFICATION = (
    ("event", "id", _EVENT),
    ("event_hist", "id", f"{_EVENT} text: outcome moment: finished_at"),
    (
        "message_key",
        "queue message_id",
        "text: queue message_id int: event_id parent_id moment: seen_at",
    ),
    ("target_limit", "queue target", "text: queue target int4: running"),
    (
        "process",
        "id",
        "text: id host moment: started_at seen_at text: last_wake_reason int4: turns"
        " json: serves problems",
    ),
    (
        "agent_message",
        "id",
        "int: id text: agent_id role channel sender message_id content conversation subject origin"
        " moment: created_at",
    ),
    (
        "chat_message",
        "id",
        "int: id text: team_id from_agent message subject key moment: created_at",
    ),
    # Readers know rows by their position: column place on PostgreSQL, the id on SQLite.
    ("activity", "id", "int: id=place frames: frames moment: created_at"),
    (
        "observation",
        "workspace_id id",
        "text: workspace_id id subject_type subject_id observer type content"
        " texts: source_message_ids real: confidence int: version"
        " moment: created_at updated_at deleted_at",
    ),
    (
        "knowledge",
        "agent_name context_id document_id nth",
        "text: agent_name context_id document_id int4: nth text: content hash model int: version"
        " flag: deleted moment: updated_at vector: embedding",
    ),
    ("audit", "id", "int: id moment: at text: actor action subject json: details"),
    (
        "credential",
        "id",
        "text: id kind digest name role json: channels agents text: sender owner"
        " moment: created_at expires_at used_at",
    ),
    ("person_link", "subject", "text: subject uuid: person moment: linked_at"),
    (
        "conversation",
        "id",
        "int: id text: conversation owner channel sender title subject"
        " moment: created_at updated_at flag: pinned archived int: read_to",
    ),
    (
        "file",
        "id",
        "text: id owner name type int: size moment: created_at"
        " text: message_id agent path conversation subject",
    ),
    (
        "message_version",
        "message_id",
        "text: message_id original conversation flag: superseded moment: created_at",
    ),
    (
        "step",
        "id",
        "int: id event_id text: key kind state int4: attempt events text: digest error signal"
        " moment: due_at int: tokens real: cost moment: started_at ended_at"
        " text: arguments result",
    ),
    (
        "journal",
        "event_id",
        "int: event_id int4: generation length text: progress json: preview moment: updated_at",
    ),
    ("journal_text", "event_id position", "int: event_id int4: position text: text"),
    ("signal", "id", "int: id event_id text: name value moment: created_at text: taken_by"),
    (
        "pairing",
        "channel sender_id",
        "text: channel sender_id sender subject code moment: requested_at expires_at approved_at"
        " text: approved_by",
    ),
    (
        "schedule",
        "id",
        "text: id source agent timing zone missed event subject"
        " moment: starts_at next_at last_at paused_at created_at",
    ),
    (
        "attempt",
        "id",
        "int: id event_id int4: attempt moment: at text: worker error error_class traceback",
    ),
    ("pause", "kind name", "text: kind name reason paused_by moment: paused_at"),
    ("dead_note", "cause", "text: cause note noted_by moment: noted_at"),
    # Must be the last: with its row `activity`, triggers would report the events that are copied.
    ("setting", "key", "text: key json: value"),
)

TABLES = tuple(
    Table(
        name,
        tuple(key.split()),
        _columns(columns),
        f"substr(key, 1, {len(STATE_KEYS)}) <> '{STATE_KEYS}' and key <> '{SUMS}'"
        if name == "setting"
        else "true",
    )
    for name, key, columns in _SPECIFICATION
)
BY_NAME = {table.name: table for table in TABLES}

COUNTERS = ("event", "chat_message", "activity", "audit", "signal", "fence", "observation_version")
"""Numbers that only grow and whose last value both engines keep."""
DERIVED_COUNTERS = ("step", "conversation", "attempt")
"""Ids that SQLite derives from the greatest one in the table. On PostgreSQL they are sequences."""

NOT_MOVED = {
    "version": "of the program that migrated the database",
    "migration": "each engine has scripts of its own",
    "activity_end": "a counter",
    "fence": "a counter",
    "observation_version": "a counter",
    "sqlite_sequence": "counters",
    "event_count": "sums of history, which the next sweep adds up again",
    "knowledge_text": "SQLite's full-text index, filled by triggers on knowledge",
}
"""Tables that a move leaves out, and why."""
