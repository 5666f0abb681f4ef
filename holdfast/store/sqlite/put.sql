-- Storing events. :rows is a JSON array of
-- [queue, target, lane, event_ts, vt, event, message_id, max_attempts, parent_id, root_id, hops,
-- sent_by, routed_text, routed_team].
-- Rows get their ids in this order, from :last_id + 1.

-- name: draw_ids
update sqlite_sequence set seq = seq + :count where name = 'event' returning seq;

-- name: first_ids
insert into sqlite_sequence (name, seq) values ('event', :count) returning seq;

-- name: put_key
-- One row: ?1 to ?14 as above, ?15 its id, ?16 the time. The parameters are numbered, since each
-- named one costs a look-up.
insert into message_key (queue, message_id, event_id, parent_id, seen_at)
values (?1, ?7, ?15, ?9, ?16)
on conflict (queue, message_id) do nothing;

-- name: put_event
-- the same row; computing `head` here saves the second write of the trigger
insert into event (
  id, queue, target, lane, head,
  event_ts, vt, event, message_id, max_attempts, parent_id, root_id, hops,
  created_at, updated_at, sent_by, routed_text, routed_team
)
values (
  ?15, ?1, ?2, ?3,
  not exists (
    select 1 from event as h indexed by event_lane
    where h.queue = ?1 and h.lane = ?3 and iif(h.head, 0, h.id) = 0
  ),
  coalesce(?4, ?16), coalesce(?5, ?16), ?6, ?7, ?8, ?9, coalesce(?10, ?15), ?11,
  ?16, ?16, ?12, ?13, ?14
);

-- name: put_keys
insert into message_key (queue, message_id, event_id, parent_id, seen_at)
select
  json_extract(r.value, '$[0]'),
  json_extract(r.value, '$[6]'),
  :last_id + 1 + r.key,
  json_extract(r.value, '$[8]'),
  :now
from json_each(:rows) as r
where json_extract(r.value, '$[6]') is not null
on conflict (queue, message_id) do nothing;

-- name: put_events
insert into event (
  id, queue, target, lane, head, event_ts, vt, event,
  message_id, max_attempts, parent_id, root_id, hops,
  created_at, updated_at, sent_by, routed_text, routed_team
)
select
  n.id, n.queue, n.target, n.lane, n.lane is null, coalesce(n.event_ts, :now),
  coalesce(n.vt, :now), n.event,
  n.message_id, n.max_attempts, n.parent_id, coalesce(n.root_id, n.id), n.hops,
  :now, :now, n.sent_by, n.routed_text, n.routed_team
from (
  select
    :last_id + 1 + r.key as id,
    json_extract(r.value, '$[0]') as queue,
    json_extract(r.value, '$[1]') as target,
    -- a delayed event carries no lane: it would hold up its successors
    case
      when coalesce(json_extract(r.value, '$[4]') <= :now, 1) then json_extract(r.value, '$[2]')
    end as lane,
    json_extract(r.value, '$[3]') as event_ts,
    json_extract(r.value, '$[4]') as vt,
    json_extract(r.value, '$[5]') as event,
    json_extract(r.value, '$[6]') as message_id,
    json_extract(r.value, '$[7]') as max_attempts,
    json_extract(r.value, '$[8]') as parent_id,
    json_extract(r.value, '$[9]') as root_id,
    json_extract(r.value, '$[10]') as hops,
    json_extract(r.value, '$[11]') as sent_by,
    json_extract(r.value, '$[12]') as routed_text,
    json_extract(r.value, '$[13]') as routed_team
  from json_each(:rows) as r
) as n
left join message_key as k on k.queue = n.queue and k.message_id = n.message_id
where n.message_id is null or k.event_id = n.id;

-- name: ids_after
select json_group_array(id) from event where id > :last_id and id <= :last_id + :count;

-- name: known_keys
select k.queue, k.message_id, k.parent_id
from json_each(:keys) as r
join message_key as k
  on k.queue = json_extract(r.value, '$[0]') and k.message_id = json_extract(r.value, '$[1]');

-- name: put_agent_messages
-- :lines is a JSON array of these columns; ids without the offset
insert into agent_message (
  agent_id, role, channel, sender, message_id, content, conversation, subject, origin, created_at,
  id
)
select
  json_extract(r.value, '$[0]'), json_extract(r.value, '$[1]'), json_extract(r.value, '$[2]'),
  json_extract(r.value, '$[3]'), json_extract(r.value, '$[4]'), json_extract(r.value, '$[5]'),
  json_extract(r.value, '$[6]'), json_extract(r.value, '$[7]'), json_extract(r.value, '$[8]'),
  json_extract(r.value, '$[9]'), json_extract(r.value, '$[10]') + (select value from line_offset)
from json_each(:lines) as r
where true
on conflict (id) do nothing;

-- name: keep_lines
-- the lines of messages that died
insert into agent_message (
  id, agent_id, role, channel, sender, message_id, content, conversation, subject, created_at,
  origin
)
select
  id, agent_id, role, channel, sender, message_id, content, conversation, subject, created_at,
  origin
from message_line
where event_id in (select value from json_each(:ids))
on conflict (id) do nothing;

-- name: erase_lines
-- the stored lines of dead letters that were discarded, or revived: a live event is its own line
delete from agent_message
where id in (
  select r.value + (select value from line_offset)
  from json_each(:ids) as r
);

-- name: put_chat_messages
-- :lines is a JSON array of these columns
insert into chat_message (team_id, from_agent, message, subject, key, created_at)
select
  json_extract(r.value, '$[0]'), json_extract(r.value, '$[1]'), json_extract(r.value, '$[2]'),
  json_extract(r.value, '$[3]'), json_extract(r.value, '$[4]'), json_extract(r.value, '$[5]')
from json_each(:lines) as r;

-- name: list_conversation
insert into conversation (
  id, conversation, owner, channel, sender, title, subject, created_at, updated_at
)
values (
  (select coalesce(max(id), 0) + 1 from conversation),
  :conversation, :owner, :channel, :sender, :title, :subject, :now, :now
)
on conflict (conversation, owner) do update
set id = excluded.id, updated_at = excluded.updated_at, archived = 0;

-- name: send_files
update file
set message_id = :message_id, conversation = :conversation, subject = :subject
where id in (select value from json_each(:ids)) and owner = :owner and message_id is null;

-- name: add_answer_file
insert into file (
  id, owner, name, type, size, created_at, message_id, agent, path, conversation, subject
)
values (
  :id, :owner, :name, :type, :size, :now, :message_id, :agent, :path, :conversation, :subject
)
on conflict (id) do nothing;

-- name: keep_original
insert into message_version (message_id, original, conversation, superseded, created_at)
values (:original, :original, :conversation, 1, :now)
on conflict (message_id) do nothing;

-- name: supersede_versions
update message_version set superseded = 1 where original = :original;

-- name: keep_version
insert into message_version (message_id, original, conversation, superseded, created_at)
values (:message_id, :original, :conversation, 0, :now)
on conflict (message_id) do nothing;
