-- The line of a message in its agent's history has the id of its event, plus an offset. So a
-- waiting message has its line, id included, before anybody works it. The offset is the greatest
-- id of the lines of earlier releases, which keep theirs.
insert into setting (key, value)
select 'line_offset', cast(coalesce(max(id), 0) as text) from agent_message;

create view line_offset as
select cast(value as integer) as value from setting where key = 'line_offset';

-- Messages as lines of their agents' histories. A live one has no other line; once it has died or
-- is completed, its line is in agent_message, under the same id. To be read by event_id: "+" keeps
-- SQLite from reading the whole queue instead.
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
  id as event_id
from event_fields
where +queue = 'inbox';

drop view agent_messages;

create view agent_messages as
select id, agent_id, role, channel, sender, message_id, content, created_at / 1000 as created_at
from agent_message
union all
select id, agent_id, role, channel, sender, message_id, content, created_at / 1000 as created_at
from message_line
where event_id in (select id from event where queue = 'inbox');

insert into agent_message (
  id, agent_id, role, channel, sender, message_id, content, conversation, subject, created_at
)
select
  id, agent_id, role, channel, sender, message_id, content, conversation, subject, created_at
from message_line
where event_id in (select id from dead_letter where queue = 'inbox');
