-- Times are integer microseconds since 1970. Defaults use SQLite's own clock, so that a plain insert from any client works.

create table event (
  id integer primary key autoincrement,
  queue text not null default 'inbox',
  target text not null default '',
  lane text,
  -- 0 and not 1: the trigger after the insert gives a lane its head, and an event without a lane its own
  head integer not null default 0 check (head in (0, 1)),
  event_ts integer not null default (
    cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
  ),
  attempts integer not null default 0,
  vt integer not null default (
    cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
  ),
  claimed text not null default '[]' check (json_valid(claimed)),
  event text not null check (json_valid(event)),
  fence integer not null default 0,
  holder text,
  message_id text,
  max_attempts integer,
  parent_id integer,
  root_id integer,
  hops integer not null default 0,
  state text check (state is null or json_valid(state)),
  last_error text,
  error_class text,
  created_at integer not null default (
    cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
  ),
  updated_at integer not null default (
    cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
  )
) strict;

-- every index ends in the rowid, which is our id: this one is (queue, target, vt, id)
create index event_ready on event (queue, target, vt) where head and fence = 0;
-- a claim moves an event from there to here; one whose lease ran out is ready, too
create index event_leased on event (queue, target, vt) where fence > 0;
-- A lane in its order, the head at place 0 and so only once. One index and not two: lanes are scattered, and with
-- many of them every event that comes or goes writes a page of its own in each.
create unique index event_lane on event (queue, lane, iif(head, 0, id)) where lane is not null;
create index event_tried on event (queue) where attempts > 0 and fence = 0;

-- what comes here was checked in event
create table event_hist (
  id integer primary key,
  queue text not null,
  target text not null,
  lane text,
  head integer not null,
  event_ts integer not null,
  attempts integer not null,
  vt integer not null,
  claimed text not null,
  event text not null,
  fence integer not null default 0,
  holder text,
  message_id text,
  max_attempts integer,
  parent_id integer,
  root_id integer,
  hops integer not null default 0,
  state text,
  last_error text,
  error_class text,
  created_at integer not null,
  updated_at integer not null,
  outcome text not null check (outcome in ('completed', 'dead', 'expired', 'cancelled', 'discarded')),
  finished_at integer not null
) strict;

create index event_hist_outcome on event_hist (queue, outcome, finished_at);
create index event_hist_dead on event_hist (id) where outcome in ('dead', 'expired', 'cancelled');

-- what makes a message known: written in the transaction that inserts the event
create table message_key (
  queue text not null,
  message_id text not null,
  event_id integer not null,
  parent_id integer,
  seen_at integer not null,
  primary key (queue, message_id)
) strict, without rowid;

create index message_key_seen on message_key (queue, seen_at);

-- the last fence given out; it only grows, so that no fence is used twice
create table fence (
  one integer primary key check (one = 1),
  value integer not null
) strict;

insert into fence (one, value) values (1, 0);

create table target_limit (
  queue text not null,
  target text not null,
  running integer not null check (running >= 0),
  primary key (queue, target)
) strict, without rowid;

create table setting (
  key text primary key,
  value text not null check (json_valid(value))
) strict, without rowid;

create table process (
  id text primary key,
  host text not null,
  started_at integer not null,
  seen_at integer not null,
  last_wake_reason text,
  turns integer not null default 0
) strict, without rowid;

create table agent_message (
  id integer primary key autoincrement,
  agent_id text not null,
  role text not null check (role in ('user', 'assistant')),
  channel text not null,
  sender text not null,
  message_id text not null,
  content text not null,
  created_at integer not null default (
    cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
  )
) strict;

create index agent_message_agent on agent_message (agent_id);

create table chat_message (
  id integer primary key autoincrement,
  team_id text not null,
  from_agent text not null,
  message text not null,
  created_at integer not null default (
    cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
  )
) strict;

create index chat_message_team on chat_message (team_id);
