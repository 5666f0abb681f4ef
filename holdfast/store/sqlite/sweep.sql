-- Maintenance: what is over ends, what is old is forgotten. Each statement takes at most :batch at once.

-- name: used_up
select id from event
where queue = :queue and attempts > 0 and attempts >= coalesce(max_attempts, :max_attempts)
  and not (fence > 0 and vt > :now)
limit :batch;

-- name: waited_long
-- targets are walked one by one, so that each is a short range of the ready index
with recursive known (target) as (
  select (select min(target) from event where queue = :queue and head)
  union all
  select (select min(e.target) from event as e where e.queue = :queue and e.head and e.target > known.target)
  from known
  where known.target is not null
)
select e.id
from known
join event as e on e.queue = :queue and e.target = known.target and e.head and e.vt < :before
where e.attempts < coalesce(e.max_attempts, :max_attempts) and e.attempts <= :max_tried
limit :batch;

-- name: headless_lanes
-- lanes are walked one by one, so that a long lane costs no more than a short one
with recursive known (lane) as (
  select (select min(lane) from event where queue = :queue and lane is not null)
  union all
  select (select min(e.lane) from event as e where e.queue = :queue and e.lane > known.lane)
  from known
  where known.lane is not null
)
select known.lane
from known
where known.lane is not null
  and not exists (select 1 from event as h where h.queue = :queue and h.lane = known.lane and h.head);

-- name: mend_lane
update event set head = 1, vt = max(vt, :now)
where id = (select n.id from event as n where n.queue = :queue and n.lane = :lane order by n.id limit 1)
  and not exists (select 1 from event as h where h.queue = :queue and h.lane = :lane and h.head);

-- name: forget_keys
delete from message_key
where queue = :queue
  and message_id in (
    select k.message_id from message_key as k
    where k.queue = :queue and k.seen_at < :before and not exists (select 1 from event as e where e.id = k.event_id)
    limit :batch
  );

-- name: prune_history
delete from event_hist
where id in (
  select id from event_hist
  where queue = :queue and outcome in ('completed', 'discarded') and finished_at < :before
  limit :batch
);
