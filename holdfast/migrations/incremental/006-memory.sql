-- What agents remember, and the index in which it is found.

create sequence agent.observation_version;

create table agent.observation
( workspace_id text not null
, id text not null
, subject_type text not null
, subject_id text not null
, observer text not null default ''
, type text not null default 'EXPLICIT'
, content text not null
, source_message_ids text[] not null default '{}'
, confidence float8 not null default 0.9 check (confidence between 0 and 1)
, version int8 not null default 0
, created_at timestamptz not null default agent.now()
, updated_at timestamptz not null default agent.now()
, deleted_at timestamptz
, primary key (workspace_id, id)
);

create index observation_subject on agent.observation (workspace_id, subject_type, subject_id, version) where deleted_at is null;
create index observation_doubtful on agent.observation (workspace_id, confidence) where deleted_at is null;
create index observation_deleted on agent.observation (deleted_at) where deleted_at is not null;

-- A row is a piece of a document. A deleted document leaves its first piece, without content, so that a late writer
-- with an older version does not bring it back. With pgvector, agent.enable_vectors adds the column embedding.
create table agent.knowledge
( agent_name text not null
, context_id text not null
, document_id text not null
, nth int4 not null
, content text not null
, hash text not null
, model text not null
, version int8 not null
, deleted bool not null default false
, updated_at timestamptz not null default agent.now()
, words tsvector generated always as (to_tsvector('pg_catalog.english'::regconfig, content)) stored
, primary key (agent_name, context_id, document_id, nth)
);

create index knowledge_words on agent.knowledge using gin (words);
create index knowledge_deleted on agent.knowledge (updated_at) where deleted;
