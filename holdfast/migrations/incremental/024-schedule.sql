-- Schedules: messages that are put at certain times. `event` is the payload to put, as JSON.
-- `next_at` is the next run, null after the last one. Moving it on is guarded by its old value.
create table agent.schedule
( id text collate "C" not null primary key
, source text not null check (source in ('person', 'agent', 'file'))
, agent text not null
, timing text not null
, zone text not null
, missed text not null check (missed in ('skip', 'once', 'all'))
, event text not null
, subject text not null
, starts_at timestamptz not null
, next_at timestamptz
, last_at timestamptz
, paused_at timestamptz
, created_at timestamptz not null
);

create index schedule_next on agent.schedule (next_at) where paused_at is null;
create index schedule_subject on agent.schedule (subject);
