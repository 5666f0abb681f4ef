-- Observations, and the knowledge index: documents in pieces, with their text and their vectors.

-- name: next_observation_version
update observation_version set value = value + 1 where one = 1 returning value;

-- name: observation_subject_of
select workspace_id || ':' || subject_type || ':' || subject_id
from observation
where workspace_id = :workspace_id and id = :id and (deleted_at is null or :deleted);

-- name: observation_version_of
select version
from observation
where workspace_id = :workspace_id and id = :id and deleted_at is null;

-- name: save_observation
insert into observation (
  workspace_id, id, subject_type, subject_id, observer, type, content, source_message_ids,
  confidence, version, created_at, updated_at
)
values (
  :workspace_id, :id, :subject_type, :subject_id, :observer, :type, :content, :source_message_ids,
  :confidence, :version, :now, :now
)
on conflict (workspace_id, id) do update
set subject_type = excluded.subject_type, subject_id = excluded.subject_id,
  observer = excluded.observer, type = excluded.type, content = excluded.content,
  source_message_ids = excluded.source_message_ids, confidence = excluded.confidence,
  version = excluded.version, updated_at = excluded.updated_at, deleted_at = null;

-- name: delete_observation
delete from observation where workspace_id = :workspace_id and id = :id;

-- name: soft_delete_observation
update observation
set deleted_at = :now, updated_at = :now, version = :version
where workspace_id = :workspace_id and id = :id and deleted_at is null;

-- name: observations_by_id
select
  workspace_id, id, subject_type, subject_id, observer, type, content, source_message_ids, version,
  created_at, updated_at, deleted_at
from observation
where deleted_at is null and workspace_id = :workspace_id
  and id in (select value from json_each(:ids))
order by id;

-- name: observations_by_subject
select
  workspace_id, id, subject_type, subject_id, observer, type, content, source_message_ids, version,
  created_at, updated_at, deleted_at
from observation
where deleted_at is null and workspace_id = :workspace_id and subject_type = :subject_type
  and subject_id = :subject_id
order by version desc
limit :limit;

-- name: doubtful_observations
select
  workspace_id, id, subject_type, subject_id, observer, type, content, source_message_ids, version,
  created_at, updated_at, deleted_at
from observation
where deleted_at is null and workspace_id = :workspace_id and confidence < :confidence
order by confidence, id
limit :limit;

-- name: observation_subjects
select workspace_id, subject_type, subject_id, count(*)
from observation
where deleted_at is null and (:workspace_id is null or workspace_id = :workspace_id)
  and (workspace_id, subject_type, subject_id) > (:after_workspace, :after_type, :after_id)
group by workspace_id, subject_type, subject_id
order by workspace_id, subject_type, subject_id
limit :limit;

-- name: observations_of_workspace
select id from observation where workspace_id = :workspace_id order by id;

-- name: purge_observations
delete from observation where deleted_at < :before;

-- name: learned_from
-- observations with no other source than these messages
select id, workspace_id || ':' || subject_type || ':' || subject_id from observation
where workspace_id = :workspace_id and source_message_ids <> '[]'
  and not exists (
    select 1 from json_each(source_message_ids) as source
    where source.value not in (select value from json_each(:names))
  )
order by id;

-- name: forget_observations
delete from observation
where workspace_id = :workspace_id and subject_type = :subject_type and subject_id = :subject_id;

-- name: mark_other_models
-- Documents of other models lose their model, so that each is queued for the index only once.
update knowledge set model = ''
where id in (
  select id from knowledge indexed by knowledge_model
  where agent_name = :agent_name and nth = 0 and not deleted
    and ((model > '' and model < :model) or model > :model)
  limit :limit
)
returning context_id, document_id, version;

-- name: pending_changes
select exists (select 1 from event where queue = 'memory' and lane = :subject_key);

-- name: purge_tombstones
delete from knowledge where deleted and updated_at < :before;

-- name: documents_by_id
select document_id, hash, model, version, deleted
from knowledge
where agent_name = :agent_name and context_id = :context_id and nth = 0
  and document_id in (select value from json_each(:ids));

-- name: live_documents
select document_id, hash, model, version, deleted
from knowledge
where agent_name = :agent_name and context_id = :context_id and nth = 0 and not deleted;

-- name: move_document_version
update knowledge
set version = :version, updated_at = :now
where agent_name = :agent_name and context_id = :context_id and document_id = :document_id;

-- name: forgotten_version
select version from knowledge
where agent_name = :agent_name and context_id = :context_id and document_id = '' and nth = 0
  and deleted;

-- name: delete_scope
delete from knowledge where agent_name = :agent_name and context_id = :context_id;

-- name: delete_pieces
delete from knowledge
where agent_name = :agent_name and context_id = :context_id and document_id = :document_id;

-- name: put_piece
insert into knowledge (
  agent_name, context_id, document_id, nth, content, hash, model, version, deleted, updated_at,
  embedding
)
values (
  :agent_name, :context_id, :document_id, :nth, :content, :hash, :model, :version, :deleted, :now,
  :embedding
);

-- name: document_pieces
select id, content from knowledge where id in (select value from json_each(:ids));

-- name: documents_by_words
select k.document_id, k.content
from knowledge_text as t
inner join knowledge as k on k.id = t.rowid
where knowledge_text match :query
order by bm25(knowledge_text), k.document_id
limit :limit;

-- name: document_vectors
select id, document_id, embedding
from knowledge
where agent_name = :agent_name and context_id = :context_id and model = :model and not deleted;

-- name: knowledge_status
select agent_name, context_id, count(*), sum(model <> :model)
from knowledge
where nth = 0 and not deleted
group by agent_name, context_id
order by agent_name, context_id;

-- name: rebuild_text
-- The segments of the index keep the words of deleted documents until they are merged.
insert into knowledge_text (knowledge_text) values ('rebuild');
