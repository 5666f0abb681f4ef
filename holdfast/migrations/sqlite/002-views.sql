-- The classical shapes, for people and tools. Times here are integer milliseconds since 1970.

create view messages as
select
  m.id,
  m.message_id,
  case when m.kind is null then 'slack' else json_extract(m.event, '$.channel') end as channel,
  case when m.kind is null then json_extract(m.event, '$.user') else json_extract(m.event, '$.sender') end as sender,
  case when m.kind is null then json_extract(m.event, '$.user') else json_extract(m.event, '$.sender_id') end
    as sender_id,
  case when m.kind is null then json_extract(m.event, '$.text') else json_extract(m.event, '$.message') end as message,
  nullif(m.target, '') as agent,
  json_extract(m.event, '$.from_agent') as from_agent,
  m.status,
  -- the attempt that runs, or that succeeded, has not failed
  max(m.attempts - (m.status in ('processing', 'completed')), 0) as retry_count,
  m.last_error,
  m.created_at / 1000 as created_at,
  m.updated_at / 1000 as updated_at
from (
  select
    id, message_id, event, target, attempts, last_error, created_at, updated_at,
    json_extract(event, '$.kind') as kind,
    case
      when fence > 0 and vt / 1000 > cast(strftime('%s', 'now') as integer) * 1000
        + cast(substr(strftime('%f', 'now'), 4) as integer) then 'processing'
      else 'pending'
    end as status
  from event
  where queue = 'inbox'
  union all
  select
    id, message_id, event, target, attempts, last_error, created_at, updated_at,
    json_extract(event, '$.kind') as kind,
    case outcome when 'completed' then 'completed' else 'dead' end as status
  from event_hist
  where queue = 'inbox' and outcome <> 'discarded'
) as m;

create view responses as
select
  r.id,
  json_extract(r.event, '$.message_id') as message_id,
  json_extract(r.event, '$.channel') as channel,
  json_extract(r.event, '$.sender') as sender,
  json_extract(r.event, '$.sender_id') as sender_id,
  json_extract(r.event, '$.message') as message,
  json_extract(r.event, '$.original_message') as original_message,
  json_extract(r.event, '$.agent') as agent,
  json_extract(r.event, '$.files') as files,
  json_extract(r.event, '$.metadata') as metadata,
  r.status,
  r.created_at / 1000 as created_at,
  r.acked_at / 1000 as acked_at
from (
  select id, event, 'pending' as status, created_at, null as acked_at
  from event
  where queue = 'outbox'
  union all
  select
    id, event,
    case outcome when 'completed' then 'acked' else 'dead' end as status,
    created_at,
    case outcome when 'completed' then finished_at end as acked_at
  from event_hist
  where queue = 'outbox' and outcome <> 'discarded'
) as r;

create view mem_outbox as
select
  o.id,
  json_extract(o.event, '$.workspace_id') as workspace_id,
  json_extract(o.event, '$.observation_local_id') as observation_local_id,
  json_extract(o.event, '$.subject_key') as subject_key,
  json_extract(o.event, '$.operation') as operation,
  o.attempt_count,
  o.last_error,
  o.created_at / 1000 as created_at,
  o.vt / 1000 as next_attempt_at,
  o.claimed_by,
  o.claimed_until / 1000 as claimed_until
from (
  select
    id, event, last_error, created_at, vt,
    max(attempts - leased, 0) as attempt_count,
    case when leased then holder end as claimed_by,
    case when leased then vt end as claimed_until
  from (
    select
      id, event, attempts, last_error, created_at, vt, holder,
      fence > 0 and vt / 1000 > cast(strftime('%s', 'now') as integer) * 1000
        + cast(substr(strftime('%f', 'now'), 4) as integer) as leased
    from event
    where queue = 'memory'
  )
  union all
  select
    id, event, last_error, created_at, vt,
    attempts as attempt_count,
    'POISON' as claimed_by,
    253402214400000000 as claimed_until -- 9999-12-31
  from event_hist
  where queue = 'memory' and outcome in ('dead', 'expired', 'cancelled')
) as o;

create view agent_messages as
select id, agent_id, role, channel, sender, message_id, content, created_at / 1000 as created_at
from agent_message;

create view chat_messages as
select id, team_id, from_agent, message, created_at / 1000 as created_at
from chat_message;
