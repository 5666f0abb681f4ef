-- The chat page: states of conversations, uploaded files, and versions of messages.

-- `read_to` is the id of the newest line that the owner has seen; all that there is now counts as
-- seen.
alter table agent.conversation
    add column pinned bool not null default false
  , add column archived bool not null default false
  , add column read_to int8 not null default 0;

update agent.conversation
set read_to = (select coalesce(max(id), 0) from agent.agent_message);

-- The message of a person that led to a line of an agent's history, '' if it is the line's own.
alter table agent.agent_message add column origin text collate "C" not null default '';

-- Files of conversations. An upload without a message is its owner's alone and is deleted after a
-- day; then it belongs to the message and its conversation. Files of answers name their agent, and
-- their path below the files root.
create table agent.file
( id text collate "C" not null primary key
, owner text collate "C" not null
, name text not null
, type text not null
, size int8 not null
, created_at timestamptz not null
, message_id text collate "C"
, agent text collate "C" not null default ''
, path text not null default ''
, conversation text collate "C" not null default ''
, subject text collate "C" not null default ''
);

create index file_message on agent.file (message_id) where message_id is not null;
create index file_unsent on agent.file (owner, created_at) where message_id is null;
create index file_conversation on agent.file (conversation);
create index file_subject on agent.file (subject);

-- Messages that were asked once more, and those that replaced them. `original` is the first one.
create table agent.message_version
( message_id text collate "C" not null primary key
, original text collate "C" not null
, conversation text collate "C" not null
, superseded bool not null
, created_at timestamptz not null
);

create index message_version_original on agent.message_version (original);
create index message_version_conversation on agent.message_version (conversation);
