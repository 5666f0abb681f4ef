-- The knowledge index: documents in pieces, with their text and their vectors.

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
-- Its segments keep the words of deleted documents until they are merged; build it anew.
insert into knowledge_text (knowledge_text) values ('rebuild');
