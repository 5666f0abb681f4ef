-- The journal of an event: steps of its turns, the text written so far, and signals. Rows belong to
-- an event by id, which is the same live and in history, so there are no foreign keys.

-- `id` grows in the order in which steps were first recorded.
create table step (
  id integer primary key,
  event_id integer not null,
  key text not null,
  kind text not null check (kind in ('step', 'once', 'sleep', 'signal')),
  state text not null check (state in ('started', 'done', 'failed', 'unknown')),
  attempt integer not null,
  events integer not null default 1,
  digest text,
  error text,
  signal text,
  due_at integer,
  tokens integer,
  cost real,
  started_at integer not null,
  ended_at integer,
  -- the long ones last: readers of the others do not read them
  arguments text,
  result text,
  unique (event_id, key)
) strict;

create table journal (
  event_id integer primary key,
  generation integer not null default 0,
  -- code points of the text
  length integer not null default 0,
  progress text,
  preview text,
  updated_at integer not null
) strict;

-- One row per flush, so that a long text costs no more per flush than a short one.
create table journal_text (
  event_id integer not null,
  -- code points before it
  position integer not null,
  text text not null,
  primary key (event_id, position)
) strict, without rowid;

create table signal (
  id integer primary key autoincrement,
  event_id integer not null,
  name text not null,
  value text not null,
  created_at integer not null,
  -- key of the step that took it
  taken_by text
) strict;

create index signal_event on signal (event_id);
create index signal_untaken on signal (event_id, name) where taken_by is null;
