-- What agents remember, and the index in which it is found. Times are integer microseconds since 1970.

-- the last version given out; it only grows
create table observation_version (
  one integer primary key check (one = 1),
  value integer not null
) strict;

insert into observation_version (one, value) values (1, 0);

create table observation (
  workspace_id text not null,
  id text not null,
  subject_type text not null,
  subject_id text not null,
  observer text not null default '',
  type text not null default 'EXPLICIT',
  content text not null,
  source_message_ids text not null default '[]' check (json_valid(source_message_ids)),
  confidence real not null default 0.9 check (confidence between 0 and 1),
  version integer not null default 0,
  created_at integer not null,
  updated_at integer not null,
  deleted_at integer,
  primary key (workspace_id, id)
) strict;

create index observation_subject on observation (workspace_id, subject_type, subject_id, version) where deleted_at is null;
create index observation_doubtful on observation (workspace_id, confidence) where deleted_at is null;
create index observation_deleted on observation (deleted_at) where deleted_at is not null;

-- A row is a piece of a document. A deleted document leaves its first piece, without content, so that a late writer
-- with an older version does not bring it back.
create table knowledge (
  id integer primary key,
  agent_name text not null,
  context_id text not null,
  document_id text not null,
  nth integer not null,
  content text not null,
  hash text not null,
  model text not null,
  version integer not null,
  deleted integer not null default 0,
  updated_at integer not null,
  embedding blob
) strict;

create unique index knowledge_document on knowledge (agent_name, context_id, document_id, nth);
create index knowledge_removed on knowledge (updated_at) where deleted;

-- The scope is a word of its own in the full text, so that a search reads nothing of other scopes.
create virtual table knowledge_text using fts5 (scope, content, tokenize = 'porter unicode61');

create trigger knowledge_inserted after insert on knowledge when new.deleted = 0
begin
  insert into knowledge_text (rowid, scope, content)
  values (new.id, 's' || hex(new.agent_name || char(10) || new.context_id), new.content);
end;

create trigger knowledge_deleted after delete on knowledge when old.deleted = 0
begin
  delete from knowledge_text where rowid = old.id;
end;
