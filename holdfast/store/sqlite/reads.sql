-- Reading beside the writer.

-- name: next_due
select min(vt)
from (
  select (
    select e.vt from event as e indexed by event_ready
    where e.queue = :queue and e.target = t.value and e.head and e.fence = 0 and e.vt > :now
    order by e.vt
    limit 1
  ) as vt
  from json_each(:targets) as t
  union all
  select (
    select e.vt from event as e indexed by event_leased
    where e.queue = :queue and e.target = t.value and e.head and e.fence > 0 and e.vt > :now
    order by e.vt
    limit 1
  ) as vt
  from json_each(:targets) as t
);

-- name: waiting
-- Events with a lane, and heads without one: together all of a target, by index.
select id from (
  select id from event indexed by event_lane
  where queue = :queue and lane is not null and target = :target
    and id < :before_id and id > :since_id
  union all
  select id from event indexed by event_ready
  where queue = :queue and target = :target and head and fence = 0 and lane is null
    and id < :before_id and id > :since_id
  union all
  select id from event indexed by event_leased
  where queue = :queue and target = :target and fence > 0 and lane is null
    and id < :before_id and id > :since_id
  order by id
  limit :limit
);

-- name: recent
-- Each half walks back from the newest id and stops at the limit, without reading payloads.
select id from (
  select id from event
  where queue = :queue and id < :before_id and id > :since_id
  order by id desc
  limit :limit
)
union all
select id from (
  select id from event_hist
  where queue = :queue and outcome <> 'discarded' and id < :before_id and id > :since_id
  order by id desc
  limit :limit
)
order by id desc
limit :limit;

-- name: event_or_finished
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team
from event
where id = :id
union all
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team
from event_hist
where id = :id
limit 1;

-- name: leased
select id from event indexed by event_leased
where queue = :queue and fence > 0 and vt > :now and id < :before_id and id > :since_id
order by id desc
limit :limit;

-- name: counts
select
  queue,
  target,
  sum(head and vt <= :now) as ready,
  sum(head and vt > :now and fence = 0) as delayed,
  sum(not head and not (fence > 0 and vt > :now)) as queued,
  sum(fence > 0 and vt > :now) as leased,
  min(vt) filter (where head and vt <= :now) as ready_since,
  min(created_at) as pending_since
from event
group by queue, target
order by queue, target;

-- name: outcomes
select outcome, count(*) from event_hist where queue = :queue group by outcome;

-- name: handed_on
select count(*)
from (
  select id from event where root_id = :root_id and queue = 'inbox' and hops > 0
  union all
  select id from event_hist where root_id = :root_id and queue = 'inbox' and hops > 0
)
where id < :before_id;

-- name: spent
select coalesce(sum(json_extract(state, '$.spent')), 0)
from (
  select state from event where root_id = :root_id and queue = 'inbox' and hops > 0
  union all
  select state from event_hist where root_id = :root_id and queue = 'inbox' and hops > 0
  union all
  select state from event where id = :root_id and queue = 'inbox'
  union all
  select state from event_hist where id = :root_id and queue = 'inbox'
)
where json_type(state, '$.spent') = 'integer';

-- name: agent_messages
select id, agent_id, role, channel, sender, message_id, content, conversation, created_at
from agent_message
where agent_id = :agent_id and id < :before_id and id > :since_id
order by id desc
limit :limit;

-- name: conversation_messages
select id, agent_id, role, channel, sender, message_id, content, conversation, created_at
from agent_message
where agent_id = :agent_id and conversation = :conversation and id < :before_id and id > :since_id
  and not exists (
    select 1 from message_version as v
    where v.message_id = iif(origin = '', agent_message.message_id, origin) and v.superseded
  )
order by id desc
limit :limit;

-- name: unfinished_ids
-- Messages of an agent that wait or are being worked. Without limit: the reader stops early.
select id
from event
where queue = 'inbox'
  and id < :before_id - (select value from line_offset)
  and id > :since_id - (select value from line_offset)
  and (
    target = :agent_id
    or target = ''
    and :agent_id = (select json_extract(value, '$.default') from setting where key = 'routing')
  )
order by id desc;

-- name: message_line
select id, agent_id, role, channel, sender, message_id, content, conversation, created_at
from message_line
where event_id = :event_id;

-- name: chat_messages
select id, team_id, from_agent, message, created_at
from chat_message
where team_id = :team_id and id < :before_id and id > :since_id
order by id desc
limit :limit;

-- name: migrated
select count(*) from sqlite_master
where type = 'table' and name in ('event', 'event_hist', 'message_key', 'fence');
