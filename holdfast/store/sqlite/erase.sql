-- name: lines_of_conversation
-- the ids of the messages: those of their lines without the offset
select line.id - (select value from line_offset)
from json_each(:agents) as a
join agent_message as line on line.agent_id = a.value
where line.conversation = :conversation and line.role = 'user';

-- name: waiting_of_conversation
select id
from event
where queue = 'inbox'
  and lane in (select value from json_each(:lanes))
  and iif(json_valid(event), json_extract(event, '$.conversation'), null) = :conversation;

-- name: handed_on_of
select id from event
where queue = 'inbox' and hops > 0 and root_id in (select value from json_each(:ids))
union
select id from event_hist
where queue = 'inbox' and hops > 0 and root_id in (select value from json_each(:ids));

-- name: answers_of
-- :since = 0 reads the history of all responses: run that outside of a write transaction.
select id from event_hist
where id > :since and +queue = 'outbox' and root_id in (select value from json_each(:ids))
union
select id from event
where queue = 'outbox' and lane = :lane;

-- name: greatest_id
select max(
  coalesce((select max(id) from event), 0), coalesce((select max(id) from event_hist), 0)
);

-- name: erase_events
delete from event
where id in (select value from json_each(:ids))
returning id, coalesce(message_id, cast(id as text));

-- name: erase_history
delete from event_hist
where id in (select value from json_each(:ids))
returning id, coalesce(message_id, cast(id as text));

-- name: erase_conversation_lines
delete from agent_message
where agent_id in (select value from json_each(:agents)) and conversation = :conversation
returning message_id;

-- name: erase_conversation_files
delete from file where conversation = :conversation returning id;

-- name: erase_versions
delete from message_version where conversation = :conversation;

-- name: erase_choice
delete from setting where key = 'default/' || :conversation;

-- name: erase_conversation
delete from conversation where conversation = :conversation;

-- name: known_agents
with recursive one (agent_id) as (
  select min(agent_id) from agent_message
  union all
  select (select min(m.agent_id) from agent_message as m where m.agent_id > one.agent_id)
  from one
  where one.agent_id is not null
)
select coalesce(json_group_array(agent_id), '[]') from one where agent_id is not null;
