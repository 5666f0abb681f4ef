-- Observations of the memory, and forgetting a person.

-- name: next_observation_version
update observation_version set value = value + 1 where one = 1 returning value;

-- name: observation_subject_of
select workspace_id || ':' || subject_type || ':' || subject_id
from observation
where workspace_id = :workspace_id and id = :id and (deleted_at is null or :deleted);

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

-- name: events_of_person
select coalesce(json_group_array(id), '[]')
from (
  select id, event from event where queue in ('inbox', 'outbox')
  union all
  select id, event from event_hist where queue in ('inbox', 'outbox')
)
where subject_of(event) = :subject_key;

-- name: forget_events
delete from event
where id in (select value from json_each(:event_ids))
  -- a change about somebody else must still reach the index
  or (root_id in (select value from json_each(:event_ids)) and queue <> 'memory')
  or iif(
    queue = 'memory' and json_valid(event), json_extract(event, '$.subject_key') = :subject_key, 0
  )
returning
  coalesce(message_id, cast(id as text)),
  iif(json_valid(event), json_extract(event, '$.line'), null);

-- name: forget_history
delete from event_hist
where id in (select value from json_each(:event_ids))
  or root_id in (select value from json_each(:event_ids))
  or iif(
    queue = 'memory' and json_valid(event), json_extract(event, '$.subject_key') = :subject_key, 0
  )
returning
  coalesce(message_id, cast(id as text)),
  iif(json_valid(event), json_extract(event, '$.line'), null);

-- name: forget_agent_messages
-- Lines of earlier releases name nobody. They are found by their message, or by a conversation
-- named after the person.
delete from agent_message
where subject = :subject_key
  or (
    subject = '' and (
      message_id in (select value from json_each(:names))
      or (
        :subject_type = 'USER' and :workspace_id = 'default'
        and conversation in (:own_conversation, channel || ':' || :subject_id)
      )
    )
  )
returning message_id;

-- name: forget_chat_messages
delete from chat_message
where subject = :subject_key or (key <> '' and key in (select value from json_each(:lines)));

-- name: count_unattributed
-- rows of earlier releases that name no person
select
  (select count(*) from agent_message where subject = ''),
  (select count(*) from chat_message where subject = ''),
  (
    select count(*) from activity
    where exists (
      select 1
      from (
        select iif(type = 'object', value, '{}') as frame
        from json_each(iif(json_valid(activity.frames), activity.frames, '[]'))
      ) as f
      where json_extract(f.frame, '$.messageId') is not null
        and coalesce(json_extract(f.frame, '$.subject'), '') = ''
    )
  );

-- name: learned_from
-- observations with no other source than these messages
select id, workspace_id || ':' || subject_type || ':' || subject_id from observation
where workspace_id = :workspace_id and source_message_ids <> '[]'
  and not exists (
    select 1 from json_each(source_message_ids) as source
    where source.value not in (select value from json_each(:names))
  )
order by id;

-- name: forget_frames
-- The number of frames stays, since streams resume inside a row. A message_received leaves two,
-- as readers make an agent_routed frame of it, too.
update activity
set frames = (
  select json_group_array(json(iif(forget, '{"type":"forgotten"}', frame)))
  from (
    select
      f.frame, json_extract(f.frame, '$.type') as type,
      coalesce(
        case coalesce(json_extract(f.frame, '$.subject'), '')
          when ''
            then json_extract(f.frame, '$.messageId') in (select value from json_each(:names))
          else json_extract(f.frame, '$.subject') = :subject_key
        end,
        0
      ) as forget
    from (
      select key, iif(type = 'object', value, '{"type":"unreadable"}') as frame
      from json_each(activity.frames)
    ) as f
    order by f.key
  )
  cross join (select 1 as copy union all select 2)
  where copy = 1 or (forget and type = 'message_received')
)
where exists (
  select 1
  from (
    select iif(type = 'object', value, '{}') as frame
    from json_each(iif(json_valid(activity.frames), activity.frames, '[]'))
  ) as f
  where case coalesce(json_extract(f.frame, '$.subject'), '')
    when '' then json_extract(f.frame, '$.messageId') in (select value from json_each(:names))
    else json_extract(f.frame, '$.subject') = :subject_key
  end
);

-- name: forget_choices
-- the default agents of conversations named after the person
delete from setting
where :subject_type = 'USER' and :workspace_id = 'default' and key like 'default/%'
  and (key = 'default/' || :own_conversation
    or instr(key, 'default/' || :own_conversation || '/') = 1
    or substr(key, -(length(:subject_id) + 1)) = ':' || :subject_id);

-- name: forget_observations
delete from observation
where workspace_id = :workspace_id and subject_type = :subject_type and subject_id = :subject_id;

-- name: mark_other_models
-- marked as of no model, so that each is indexed again once
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
