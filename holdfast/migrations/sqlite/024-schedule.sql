-- Schedules: messages that are put at certain times. `event` is the payload to put, as JSON.
-- `next_at` is the next run, null after the last one. Moving it on is guarded by its old value.
create table schedule (
  id text not null primary key,
  source text not null check (source in ('person', 'agent', 'file')),
  agent text not null,
  timing text not null,
  zone text not null,
  missed text not null check (missed in ('skip', 'once', 'all')),
  event text not null,
  subject text not null,
  starts_at integer not null,
  next_at integer,
  last_at integer,
  paused_at integer,
  created_at integer not null
) strict;

create index schedule_next on schedule (next_at) where paused_at is null;
create index schedule_subject on schedule (subject);
