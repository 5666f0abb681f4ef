-- One home for reading events in plain SQL: the fields of messages, and the dead letters.

drop view messages;
drop view responses;
drop view mem_outbox;
drop trigger event_received;

-- Dead letters. SQLite uses the partial indexes on their outcomes through this view, too.
create view dead_letter as
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team, outcome, finished_at, traceback
from event_hist
where outcome in ('dead', 'expired', 'cancelled');

-- All events, live (outcome is null) and finished, with the fields of their messages. A payload
-- with a `kind` is ours, any other is Slack's; holdfast/message.py reads them by the same rule. The
-- payload of a finished event may have been changed by hand: if it is no JSON object, it has no
-- fields. The casts let SQLite read each half by itself, so that a limit stops it early.
create view event_fields as
select
  id, queue, target, message_id, event, attempts, vt, holder, last_error, created_at, updated_at,
  outcome, finished_at, is_leased,
  iif(is_slack, 'slack', json_extract(event, '$.channel')) as channel,
  json_extract(event, iif(is_slack, '$.user', '$.sender')) as sender,
  json_extract(event, iif(is_slack, '$.user', '$.sender_id')) as sender_id,
  json_extract(event, iif(is_slack, '$.text', '$.message')) as message,
  -- the person behind the message: the channel, and whether it is an id or a name
  coalesce(
    coalesce(nullif(json_extract(event, iif(is_slack, '$.team', '$.workspace')), ''), 'default')
    || ':USER:'
    || iif(is_slack, 'slack', replace(coalesce(json_extract(event, '$.channel'), ''), ':', '_'))
    || case
      when trim(json_extract(event, iif(is_slack, '$.user', '$.sender_id'))) <> ''
        then ':id:' || json_extract(event, iif(is_slack, '$.user', '$.sender_id'))
      when not is_slack and trim(json_extract(event, '$.sender')) <> ''
        then ':name:' || json_extract(event, '$.sender')
    end,
    ''
  ) as subject
from (
  select
    id, queue, target, message_id, event, attempts, vt, holder, last_error, created_at, updated_at,
    outcome, finished_at, is_leased,
    json_type(event, '$.kind') is null as is_slack
  from (
    select
      id, queue, target, message_id, event, attempts, vt, holder, last_error, created_at,
      updated_at, cast(null as text) as outcome, cast(null as integer) as finished_at,
      fence > 0 and vt / 1000 > cast(strftime('%s', 'now') as integer) * 1000
        + cast(substr(strftime('%f', 'now'), 4) as integer) as is_leased
    from event
    union all
    select
      id, queue, target, message_id,
      cast(
        case
          when not json_valid(event) then '{"kind":"unreadable"}'
          when json_type(event) <> 'object' then '{"kind":"unreadable"}'
          else event
        end as text
      ) as event,
      attempts, vt, holder, last_error, created_at, updated_at, outcome, finished_at, 0 as is_leased
    from event_hist
  )
);

-- The classical shapes, for people and tools. Times here are integer milliseconds since 1970.

create view messages as
select
  id, message_id, channel, sender, sender_id, message,
  nullif(target, '') as agent,
  json_extract(event, '$.from_agent') as from_agent,
  status,
  -- the running attempt, or the one that succeeded, has not failed
  max(attempts - (status in ('processing', 'completed')), 0) as retry_count,
  last_error,
  created_at / 1000 as created_at,
  updated_at / 1000 as updated_at
from (
  select
    id, message_id, channel, sender, sender_id, message, target, event, attempts, last_error,
    created_at, updated_at,
    case
      when outcome is null then iif(is_leased, 'processing', 'pending')
      when outcome = 'completed' then 'completed'
      else 'dead'
    end as status
  from event_fields
  where queue = 'inbox' and outcome is not 'discarded'
);

create view responses as
select
  id,
  json_extract(event, '$.message_id') as message_id,
  json_extract(event, '$.channel') as channel,
  json_extract(event, '$.sender') as sender,
  json_extract(event, '$.sender_id') as sender_id,
  json_extract(event, '$.message') as message,
  json_extract(event, '$.original_message') as original_message,
  json_extract(event, '$.agent') as agent,
  json_extract(event, '$.files') as files,
  json_extract(event, '$.metadata') as metadata,
  case
    when outcome is null then 'pending' when outcome = 'completed' then 'acked' else 'dead'
  end as status,
  created_at / 1000 as created_at,
  iif(outcome = 'completed', finished_at / 1000, null) as acked_at
from event_fields
where queue = 'outbox' and outcome is not 'discarded';

create view mem_outbox as
select
  id,
  json_extract(event, '$.workspace_id') as workspace_id,
  json_extract(event, '$.observation_local_id') as observation_local_id,
  json_extract(event, '$.subject_key') as subject_key,
  json_extract(event, '$.operation') as operation,
  attempt_count,
  last_error,
  created_at / 1000 as created_at,
  vt / 1000 as next_attempt_at,
  claimed_by,
  claimed_until / 1000 as claimed_until
from (
  select
    id, event, last_error, created_at, vt,
    max(attempts - is_leased, 0) as attempt_count,
    iif(is_leased, holder, null) as claimed_by,
    iif(is_leased, vt, null) as claimed_until
  from event_fields
  where queue = 'memory' and outcome is null
  union all
  select
    id, iif(json_valid(event), event, '{}') as event, last_error, created_at, vt,
    attempts as attempt_count,
    'POISON' as claimed_by,
    253402214400000000 as claimed_until -- 9999-12-31
  from dead_letter
  where queue = 'memory'
);

-- Holdfast itself sets root_id and stores the frame of a message; a plain insert does neither.
-- holdfast/store/activity.py builds the same frame.
create trigger event_received after insert on event
when new.queue = 'inbox' and new.root_id is null
  and coalesce((select json_extract(value, '$') from setting where key = 'activity'), 0)
begin
  insert into activity (frames)
  select json_array(json_object(
    'type', 'message_received',
    'messageId', coalesce(message_id, cast(id as text)),
    'agent', coalesce(
      nullif(target, ''),
      (select json_extract(value, '$.default') from setting where key = 'routing'),
      ''
    ),
    'channel', coalesce(channel, ''),
    'sender', coalesce(sender, ''),
    'subject', subject,
    'message', coalesce(substr(message, 1, 2000), '')
  ))
  from event_fields
  where id = new.id and outcome is null;
end;
