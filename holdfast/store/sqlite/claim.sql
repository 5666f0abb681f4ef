-- Claiming and keeping turns. Statements name their index where old statistics could make SQLite
-- scan the table instead.

-- name: ready
-- the ids of the ready heads of one target, never leased or with an expired lease, longest
-- waiting first
select id from (
  select vt, id from (
    select vt, id
    from event indexed by event_ready
    where queue = :queue and target = :target and head and fence = 0 and vt <= :now
      and attempts < coalesce(max_attempts, :max_attempts)
    order by vt, id
    limit :limit
  )
  union all
  select vt, id from (
    select vt, id
    from event indexed by event_leased
    where queue = :queue and target = :target and head and fence > 0 and vt <= :now
      and attempts < coalesce(max_attempts, :max_attempts)
    order by vt, id
    limit :limit
  )
  order by vt, id
  limit :limit
);

-- name: fresh_heads
-- The payload is read only in the inbox, where it decides which messages may share a turn.
-- `claimed_before` is the last claim of a head that recorded steps and was given back, for example
-- because its turn waits.
select
  id, lane,
  iif(
    claimed <> '[]' and exists (select 1 from step where event_id = event.id),
    json_extract(claimed, '$[#-1]'), null
  ) as claimed_before,
  target, sent_by, length(cast(event as blob)) as size, iif(queue = 'inbox', event, null) as event
from event
where id in (select value from json_each(:ids)) and lane is not null and attempts = 0;

-- name: behind
select
  id, target, attempts, vt, sent_by, length(cast(event as blob)) as size,
  iif(queue = 'inbox', event, null) as event
from event indexed by event_lane
where queue = :queue and lane = :lane and iif(head, 0, id) > :head
order by iif(head, 0, id)
limit :limit;

-- name: claimed_behind
-- the untried events that were last claimed with the head
select id
from (
  select id, attempts, claimed
  from event indexed by event_lane
  where queue = :queue and lane = :lane and iif(head, 0, id) > :head
  order by iif(head, 0, id)
  limit :limit
)
where attempts = 0 and json_extract(claimed, '$[#-1]') = :claimed_at
order by id;

-- name: has_steps
select exists (select 1 from step where event_id = :id);

-- name: alike_behind
select
  b.id,
  b.target = e.target and b.attempts = 0 and b.vt <= :now and b.sent_by is e.sent_by as fits,
  b.event,
  length(cast(b.event as blob)) as size,
  length(cast(e.event as blob)) as head_size
from event as e
join event as b indexed by event_lane
  on b.queue = e.queue and b.lane = e.lane and iif(b.head, 0, b.id) > e.id
where e.id = :id
order by iif(b.head, 0, b.id)
limit :limit;

-- name: join_turn
update event
set attempts = event.attempts + 1, vt = e.vt, holder = e.holder, fence = e.fence,
  claimed = json_insert(event.claimed, '$[#]', json_extract(e.claimed, '$[#-1]')),
  updated_at = :now
from event as e
where e.id = :id and event.id in (select value from json_each(:ids));

-- name: limits
select target, running from target_limit where queue = :queue;

-- name: default_target
-- the agent of messages that name none
select json_extract(value, '$.default') from setting where key = 'routing';

-- name: running
select count(*) from event indexed by event_leased
where queue = :queue and target = :target and fence > 0 and head and vt > :now;

-- name: next_fence
update fence set value = value + :turns where one = 1 returning value;

-- name: claim_heads
-- :heads is a JSON array of ids in the order of their fences
update event
set attempts = attempts + 1, vt = :until, holder = :holder, updated_at = :now,
  claimed = iif(claimed = '[]', '[' || :now || ']', json_insert(claimed, '$[#]', :now)),
  fence = :first_fence + r.key
from json_each(:heads) as r
where event.id = r.value;

-- name: claim_followers
-- :followers is a JSON array of [id, fence]
update event
set attempts = attempts + 1, vt = :until, holder = :holder, updated_at = :now,
  claimed = iif(claimed = '[]', '[' || :now || ']', json_insert(claimed, '$[#]', :now)),
  fence = json_extract(r.value, '$[1]')
from json_each(:followers) as r
where event.id = json_extract(r.value, '$[0]');

-- name: events
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team
from event
where id in (select value from json_each(:ids))
order by id;

-- name: held_turns
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team
from event indexed by event_leased
where queue = :queue and fence > 0 and holder = :holder and vt > :now
order by fence, id;

-- name: count_held
-- :fences is a JSON object of fences by the ids of events
select count(*)
from json_each(:fences) as r
cross join event on event.id = r.key and event.fence = r.value
where event.fence > 0;

-- name: leases
select
  json_group_array(id), json_group_array(fence), json_group_array(attempts),
  json_group_array(max_attempts)
from event
where id in (select value from json_each(:ids)) and fence > 0;

-- name: renew
update event set vt = :until, updated_at = :now where id in (select value from json_each(:ids));

-- name: checkpoint
update event set state = :state, updated_at = :now
where id = :id and fence = :fence and fence > 0
returning vt;
