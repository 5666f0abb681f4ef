"""A large history for tests and benchmarks: messages and their responses over a span of time."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from holdfast.settings.database import sqlite_path

AGENTS = ("coder", "writer", "reviewer", "helper")
CHANNELS = ("api", "slack", "web")
CAUSES = ("TimeoutError", "ModelHTTPError", "RuntimeError", "channel_not_found")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedHistory:
    """The size and the span of a history: messages, each followed by its response.

    One message in 50 is a dead letter, in groups of four causes. The word `needle` is in the text
    of every message whose number is divisible by `needle_every`."""

    rows: int
    until: datetime
    over: timedelta = timedelta(days=7)
    needle_every: int = 10_000
    with_keys: bool = True
    """Whether messages can be found by their ids."""

    @property
    def params(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "until": (self.until - EPOCH) // timedelta(microseconds=1),
            "step": self.over // timedelta(microseconds=1) // max(self.rows, 1),
            "needle": self.needle_every,
        }


# The same numbers in both dialects: `n` counts the rows, `m` the messages. A multiplier makes the
# values look random and keeps them the same in every run.
_FIELDS = """
  case m * 7 % 4 when 0 then 'coder' when 1 then 'writer' when 2 then 'reviewer' else 'helper' end
    as agent,
  case m % 3 when 0 then 'api' when 1 then 'slack' else 'web' end as channel,
  'Person ' || (m * 7919 % 200) as sender,
  case when m % 50 = 0 then 'dead' else 'completed' end as ending,
  case m / 50 * 13 % 4 when 0 then 'TimeoutError' when 1 then 'ModelHTTPError'
    when 2 then 'RuntimeError' else 'channel_not_found' end as cause,
  500 + (m * 7919 % 997) * (m * 31 % 89) as milliseconds
"""
_TEXT = """'Message ' || m || ': what broke the build of project ' || (m * 31 % 997) || '?'
  || case when m % {needle} = 0 then ' needle' else '' end"""

_POSTGRES = """
insert into agent.event_hist
( id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder, message_id
, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at
, outcome, finished_at, traceback )
select n + first, queue, case when queue = 'inbox' then agent else channel end
     , case when queue = 'inbox' then agent || '/' || channel || ':' || sender end, true, at, 1, at
     , array[at], event, 0, 'bench-1_aaaaaaaa', name, null
     , case when queue = 'outbox' then n + first - 1 end
     , case when queue = 'outbox' then n + first - 1 else n + first end, 0, null
     , case when outcome = 'dead' then cause || ': order ' || m || ' failed' end
     , case when outcome = 'dead' then cause end, at, at + took, outcome, at + took
     , case when outcome = 'dead' then 'Traceback (most recent call last):' || chr(10) || cause end
from
( select *, case when queue = 'inbox' then ending else 'completed' end as outcome
       , case when queue = 'inbox' then 'gen_' || m else 'gen_' || m || '/1' end as name
       , timestamptz 'epoch' + (%(until)s - (%(rows)s - n) * %(step)s) * interval '1 microsecond'
         as at
       , milliseconds * interval '1 millisecond' as took
       , jsonb_build_object
         ( 'kind', case when queue = 'inbox' then 'message' else 'response' end
         , 'channel', channel, 'sender', sender, 'sender_id', null, 'message', {text}
         , 'conversation', channel || ':' || sender, 'agent', agent, 'message_id', 'gen_' || m )
         as event
  from
  ( select n, (n + 1) / 2 as m, case n %% 2 when 1 then 'inbox' else 'outbox' end as queue, first
         , fields.*
    from generate_series(1, %(rows)s::int8) as n
    cross join
    ( select greatest(coalesce((select max(id) from agent.event_hist), 0)
        , coalesce((select max(id) from agent.event), 0)) as first ) as before
    cross join lateral (select (n + 1) / 2 as m) as numbered
    cross join lateral (select {fields}) as fields
  ) as named
) as made
"""

_SQLITE = """
insert into event_hist
( id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder, message_id
, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at
, outcome, finished_at, traceback )
with recursive numbered (n) as
( select 1 union all select n + 1 from numbered where n < :rows )
, named as
( select n, m, queue, first, {fields}
  from
  ( select n, (n + 1) / 2 as m, iif(n % 2, 'inbox', 'outbox') as queue
         , (select max(coalesce((select max(id) from event_hist), 0)
             , coalesce((select max(seq) from sqlite_sequence where name = 'event'), 0))) as first
    from numbered )
)
select n + first, queue, iif(queue = 'inbox', agent, channel)
     , iif(queue = 'inbox', agent || '/' || channel || ':' || sender, null), 1, at, 1, at
     , json_array(at), event, 0, 'bench-1_aaaaaaaa'
     , iif(queue = 'inbox', 'gen_' || m, 'gen_' || m || '/1'), null
     , iif(queue = 'outbox', n + first - 1, null)
     , iif(queue = 'outbox', n + first - 1, n + first), 0, null
     , iif(outcome = 'dead', cause || ': order ' || m || ' failed', null)
     , iif(outcome = 'dead', cause, null), at, at + took, outcome, at + took
     , iif(outcome = 'dead', 'Traceback (most recent call last):' || char(10) || cause, null)
from
( select *, iif(queue = 'inbox', ending, 'completed') as outcome
       , :until - (:rows - n) * :step as at, milliseconds * 1000 as took
       , json_object
         ( 'kind', iif(queue = 'inbox', 'message', 'response')
         , 'channel', channel, 'sender', sender, 'sender_id', null, 'message', {text}
         , 'conversation', channel || ':' || sender, 'agent', agent, 'message_id', 'gen_' || m )
         as event
  from named )
"""

_KEYS = """
insert into {schema}message_key (queue, message_id, event_id, parent_id, seen_at)
select queue, message_id, id, parent_id, created_at from {schema}event_hist
where message_id like 'gen!_%' escape '!' on conflict do nothing
"""


def fill_history(url: str, history: GeneratedHistory) -> None:
    """Write a generated history into a migrated database, straight into its tables."""
    path = sqlite_path(url)
    if path is None:
        _fill_postgres(url, history)
    else:
        _fill_sqlite(str(path), history)


def _fill_postgres(url: str, history: GeneratedHistory) -> None:
    text = _TEXT.format(needle="%(needle)s").replace("% ", "%% ")
    insert = _POSTGRES.format(fields=_FIELDS.replace("%", "%%"), text=text)
    with closing(psycopg.connect(url)) as connection:
        connection.execute(insert, history.params)
        if history.with_keys:
            connection.execute(_KEYS.format(schema="agent."))
        connection.execute(
            "select setval('agent.event_id_seq', max(id)) from agent.event_hist having count(*) > 0"
        )
        connection.commit()
        connection.autocommit = True
        # A table that filled slowly would have been analysed by now.
        connection.execute("vacuum analyze agent.event_hist")


def _fill_sqlite(path: str, history: GeneratedHistory) -> None:
    insert = _SQLITE.format(fields=_FIELDS, text=_TEXT.format(needle=":needle"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(insert, history.params)
        if history.with_keys:
            # SQLite parses an upsert after a select only if the select has a condition, as here.
            connection.execute(_KEYS.format(schema=""))
        connection.execute(
            "insert or replace into sqlite_sequence (rowid, name, seq)"
            " select (select rowid from sqlite_sequence where name = 'event'), 'event', max(id)"
            " from event_hist"
        )
