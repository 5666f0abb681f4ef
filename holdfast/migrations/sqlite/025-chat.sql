-- The chat page: states of conversations, uploaded files, and versions of messages.

-- `read_to` is the id of the newest line that the owner has seen; all that there is now counts as
-- seen.
alter table conversation add column pinned integer not null default 0;
alter table conversation add column archived integer not null default 0;
alter table conversation add column read_to integer not null default 0;

update conversation set read_to = (select coalesce(max(id), 0) from agent_message);

-- The message of a person that led to a line of an agent's history, '' if it is the line's own.
alter table agent_message add column origin text not null default '';

drop view message_line;

-- as before, with the origin
create view message_line as
select
  id + (select value from line_offset) as id,
  coalesce(
    nullif(target, ''),
    (select json_extract(value, '$.default') from setting where key = 'routing'),
    ''
  ) as agent_id,
  'user' as role,
  coalesce(channel, '') as channel,
  coalesce(sender, '') as sender,
  coalesce(message_id, cast(id as text)) as message_id,
  coalesce(message, '') as content,
  coalesce(
    iif(
      json_type(event, '$.kind') is null,
      'slack'
      || coalesce(':' || nullif(json_extract(event, '$.team'), ''), '')
      || coalesce(':' || nullif(json_extract(event, '$.channel'), ''), '')
      || coalesce(
        ':' || nullif(json_extract(event, '$.thread_ts'), ''),
        ':' || nullif(json_extract(event, '$.ts'), ''),
        ''
      ),
      json_extract(event, '$.conversation')
    ),
    ''
  ) as conversation,
  subject,
  created_at,
  id as event_id,
  coalesce(json_extract(event, '$.origin_id'), '') as origin
from event_fields
where +queue = 'inbox';

-- Files of conversations. An upload without a message is its owner's alone and is deleted after a
-- day; then it belongs to the message and its conversation. Files of answers name their agent, and
-- their path below the files root.
create table file (
  id text primary key,
  owner text not null,
  name text not null,
  type text not null,
  size integer not null,
  created_at integer not null,
  message_id text,
  agent text not null default '',
  path text not null default '',
  conversation text not null default '',
  subject text not null default ''
) strict, without rowid;

create index file_message on file (message_id) where message_id is not null;
create index file_unsent on file (owner, created_at) where message_id is null;
create index file_conversation on file (conversation);
create index file_subject on file (subject);

-- Messages that were asked once more, and those that replaced them. `original` is the first one.
create table message_version (
  message_id text primary key,
  original text not null,
  conversation text not null,
  superseded integer not null,
  created_at integer not null
) strict, without rowid;

create index message_version_original on message_version (original);
create index message_version_conversation on message_version (conversation);
