-- Credentials, pairings, people (links, forgetting them), and the audit log.

-- name: drop_expired_credentials
delete from credential where kind <> 'token' and expires_at <= :now;

-- name: add_credential
insert into credential (
  id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at, digest
)
values (
  :id, :kind, :name, :role, :channels, :agents, :sender, :owner, :created_at, :expires_at, :used_at,
  :digest
)
on conflict do nothing;

-- name: find_credential
select id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at
from credential
where digest = :digest and kind = :kind and (expires_at is null or expires_at > :now)
  -- a session or code of a token ends when the token expires
  and not exists (
    select 1 from credential as token
    where token.id = credential.owner and token.kind = 'token' and token.expires_at <= :now
  );

-- name: use_credential
update credential set used_at = :now where id = :id;

-- name: take_code
delete from credential
where digest = :digest and kind = 'code' and (expires_at is null or expires_at > :now)
returning id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at;

-- name: tokens
select id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at
from credential
where kind = 'token'
order by name, id;

-- name: sessions
select id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at
from credential
where kind = 'session' and (expires_at is null or expires_at > :now)
order by created_at desc, id;

-- name: revoke_token
delete from credential
where owner = (select id from credential where kind = 'token' and name = :name)
returning id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at;

-- name: end_session
delete from credential where id = :id;

-- name: end_sessions
delete from credential where kind <> 'token' and owner is null and role = :role returning kind;

-- name: person_of_subject
select person from person_link where subject = :subject;

-- name: link_subject
insert into person_link (subject, person, linked_at) values (:subject, :person, :now)
on conflict (subject) do nothing;

-- name: join_people
update person_link set person = :person where person = :other;

-- name: unlink_subject
delete from person_link where subject = :subject returning person;

-- name: unlink_last
-- a person with one identity left needs no link
delete from person_link
where person = :person and (select count(*) from person_link where person = :person) = 1;

-- name: linked_subjects
select other.subject
from person_link as own
join person_link as other on other.person = own.person
where own.subject = :subject and other.subject <> :subject
order by other.subject;

-- name: person_links
select person, subject from person_link order by person, subject;

-- name: known_as
select subject
from (
  select subject from agent_message
  union
  select subject from chat_message
  union
  select subject from person_link
  union
  select subject from pairing
  union
  select workspace_id || ':' || subject_type || ':' || subject_id from observation
  union
  select subject_of(event) from event where queue in ('inbox', 'outbox')
  union
  select subject_of(event) from event_hist where queue in ('inbox', 'outbox')
)
where is_person(subject, :key)
order by subject;

-- name: find_pairing
select channel, sender_id, sender, code, requested_at, expires_at, approved_at, approved_by
from pairing
where channel = :channel and sender_id = :sender_id and (expires_at is null or expires_at > :now);

-- name: drop_expired_pairings
delete from pairing where expires_at <= :now;

-- name: add_pairing
insert into pairing (channel, sender_id, sender, subject, code, requested_at, expires_at)
select :channel, :sender_id, :sender, :subject, :code, :now, :expires_at
where (select count(*) from pairing where channel = :channel and code is not null) < :most
on conflict do nothing;

-- name: open_pairings
select channel, sender_id, sender, code, requested_at, expires_at, approved_at, approved_by
from pairing
where code is not null and expires_at > :now
order by requested_at, code;

-- name: approved_pairings
select channel, sender_id, sender, code, requested_at, expires_at, approved_at, approved_by
from pairing
where approved_at is not null
order by channel, sender_id;

-- name: approve_pairing
update pairing
set code = null, expires_at = null, approved_at = :now, approved_by = :actor
where code = :code and expires_at > :now
returning channel, sender_id, subject;

-- name: revoke_pairing
delete from pairing
where channel = :channel and sender_id = :sender_id
returning subject;

-- name: forget_pairings
delete from pairing where subject = :subject_key;

-- name: add_audit
insert into audit (at, actor, action, subject, details)
values (:at, :actor, :action, :subject, :details);

-- name: audit_log
select id, at, actor, action, subject, details
from audit
where (:action is null or action = :action) and (:actor is null or actor = :actor)
  and (:subject is null or subject = :subject) and (:since is null or at >= :since)
  and id < :before_id and id > :since_id
order by id desc
limit :limit;

-- name: prune_audit
delete from audit where at < :before;

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
  id,
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
  id,
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

-- name: forget_frames
-- Replaces the frames of a person, or of some messages if the key is null, by forgotten ones.
-- The number of frames stays the same, since streams resume inside a row. A message_received
-- becomes two frames, as readers also derive an agent_routed frame from it.
update activity
set frames = (
  select json_group_array(json(iif(forget, '{"type":"forgotten"}', frame)))
  from (
    select
      f.frame, json_extract(f.frame, '$.type') as type,
      coalesce(
        case
          when :subject_key is null or coalesce(json_extract(f.frame, '$.subject'), '') = ''
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
  where case
    when :subject_key is null or coalesce(json_extract(f.frame, '$.subject'), '') = ''
      then json_extract(f.frame, '$.messageId') in (select value from json_each(:names))
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
