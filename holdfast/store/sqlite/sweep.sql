-- Maintenance. Each statement takes at most :batch rows at once.

-- name: used_up
select id from event indexed by event_tried
where queue = :queue and attempts > 0 and fence = 0 and vt <= :now
  and attempts >= coalesce(max_attempts, :max_attempts)
union all
select id from event indexed by event_leased
where queue = :queue and fence > 0 and vt <= :now
  and attempts >= coalesce(max_attempts, :max_attempts)
limit :batch;

-- name: known_targets
-- one seek in the ready index per target, not per event
with recursive known (target) as (
  select (
    select min(target) from event indexed by event_ready
    where queue = :queue and head and fence = 0
  )
  union all
  select (
    select min(e.target) from event as e indexed by event_ready
    where e.queue = :queue and e.head and e.fence = 0 and e.target > known.target
  )
  from known
  where known.target is not null
)
select target from known where target is not null;

-- name: paused_targets
-- One row for each paused target of a queue; a single null if all of it is paused.
select null from pause where kind = 'queue' and name = :queue
union all
select name from pause
where kind = 'agent' and :queue = 'inbox' or kind = 'channel' and :queue = 'outbox'
union all
select '' from pause
where kind = 'agent' and :queue = 'inbox'
  and name = (select json_extract(value, '$.default') from setting where key = 'routing');

-- name: waited_long
select id from event indexed by event_ready
where queue = :queue and target = :target and head and fence = 0 and vt < :before
  and attempts < coalesce(max_attempts, :max_attempts) and attempts <= :max_tried
limit :batch;

-- name: leased_long_ago
select id from event indexed by event_leased
where queue = :queue and head and fence > 0 and vt < :before
  and target not in (select value from json_each(:paused))
  and attempts < coalesce(max_attempts, :max_attempts) and attempts <= :max_tried
limit :batch;

-- name: headless_lanes
-- one seek per lane, so that a long lane costs no more than a short one
with recursive known (lane) as (
  select (
    select min(lane) from event indexed by event_lane where queue = :queue and lane is not null
  )
  union all
  select (
    select min(e.lane) from event as e indexed by event_lane
    where e.queue = :queue and e.lane > known.lane
  )
  from known
  where known.lane is not null
)
select known.lane
from known
where known.lane is not null
  and not exists (
    select 1 from event as h indexed by event_lane
    where h.queue = :queue and h.lane = known.lane and iif(h.head, 0, h.id) = 0
  );

-- name: restore_head
update event set head = 1, vt = max(vt, :now)
where head = 0
  and id = (
    select n.id from event as n indexed by event_lane
    where n.queue = :queue and n.lane = :lane
    order by iif(n.head, 0, n.id)
    limit 1
  );

-- name: old_keys
-- Examines the next :count message ids of a queue. Returns their number, the last one, and a
-- JSON array of those that can be deleted.
select
  count(*),
  max(k.message_id),
  json_group_array(k.message_id) filter (
    where k.seen_at < :before and not exists (select 1 from event as e where e.id = k.event_id)
  )
from (
  select message_id, event_id, seen_at
  from message_key
  where queue = :queue and message_id >= :start
  order by message_id
  limit :count
) as k;

-- name: forget_keys
-- checks the age again: another process may have deleted and stored the key meanwhile
delete from message_key
where queue = :queue
  and message_id in (select value from json_each(:message_ids))
  and seen_at < :before
  and not exists (select 1 from event as e where e.id = event_id);

-- name: prune_history
delete from event_hist
where id in (
  select id from event_hist indexed by event_hist_outcome
  where queue = :queue and outcome in ('completed', 'discarded') and finished_at < :before
  limit :batch
)
returning id;
