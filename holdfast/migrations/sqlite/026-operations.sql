-- Tables for operators: numbers by time, failed attempts, pauses, notes on dead letters.

-- Numbers of events, added up by the sweeper. `width` is the length of a bucket in microseconds.
-- `kind` is received, completed or failed. `cell` is the time to answer of completed events, on a
-- scale of eight cells to a doubling of the milliseconds.
create table event_count (
  width integer not null,
  bucket integer not null,
  queue text not null,
  target text not null,
  kind text not null check (kind in ('received', 'completed', 'failed')),
  cell integer not null default 0,
  events integer not null,
  tokens integer not null default 0,
  cost real not null default 0,
  primary key (width, queue, bucket, target, kind, cell)
) strict, without rowid;

-- Failed attempts of an event. They belong to it by id, like its journal.
create table attempt (
  id integer primary key,
  event_id integer not null,
  attempt integer not null,
  at integer not null,
  worker text,
  error text,
  error_class text,
  traceback text
) strict;

create index attempt_event on attempt (event_id);

-- Agents, channels and queues that nobody works until somebody resumes them.
create table pause (
  kind text not null check (kind in ('agent', 'channel', 'queue')),
  name text not null,
  reason text,
  paused_by text not null,
  paused_at integer not null,
  primary key (kind, name)
) strict, without rowid;

-- Notes of operators on groups of dead letters. `cause` is a hash, so that no text of a letter
-- outlives it.
create table dead_note (
  cause text primary key,
  note text not null,
  noted_by text not null,
  noted_at integer not null
) strict, without rowid;

-- Turns that wait for a person are few; steps are many.
create index step_signal on step (event_id) where kind = 'signal' and state = 'started';

-- Problems of the channels of a process, by channel, as JSON.
alter table process add column problems text;
