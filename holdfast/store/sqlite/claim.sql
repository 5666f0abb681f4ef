-- Claiming and keeping turns.

-- name: claim_ready
-- the ready events of one target, longest waiting first, as a JSON array of [vt, id]
select json_group_array(json_array(vt, id))
from (
  select vt, id
  from event
  where queue = :queue and target = :target and head and vt <= :now and attempts < coalesce(max_attempts, :max_attempts)
  order by vt, id
  limit :limit
);

-- name: claim_heads
select id, lane, target, length(cast(event as blob)) as size
from event
where id in (select value from json_each(:ids)) and lane is not null and attempts = 0;

-- name: claim_followers
select id, target, attempts, vt, length(cast(event as blob)) as size
from event
where queue = :queue and lane = :lane and id > :head
order by id
limit :limit;

-- name: limits
select target, running from target_limit where queue = :queue;

-- name: running
select count(*) from event
where queue = :queue and target = :target and attempts > 0 and fence > 0 and head and vt > :now;

-- name: next_fence
update fence set value = value + :turns where one = 1 returning value;

-- name: claim_events
-- :claimed is a JSON array of [id, fence]
update event
set attempts = attempts + 1, vt = :until, claimed = json_insert(claimed, '$[#]', :now), holder = :holder,
  fence = c.fence, updated_at = :now
from (
  select json_extract(r.value, '$[0]') as id, json_extract(r.value, '$[1]') as fence from json_each(:claimed) as r
) as c
where event.id = c.id;

-- name: events
select json_group_array(json_array(
  id, queue, target, lane, head, event_ts, attempts, vt, json(claimed), json(event), fence, holder, message_id,
  max_attempts, parent_id, root_id, hops, json(state), last_error, error_class, created_at, updated_at
))
from event
where id in (select value from json_each(:ids));

-- name: held
-- which of [id, fence] are still so, as a JSON array of [id, fence, attempts, max_attempts]
select json_group_array(json_array(e.id, e.fence, e.attempts, e.max_attempts))
from json_each(:claimed) as r
join event as e on e.id = json_extract(r.value, '$[0]') and e.fence = json_extract(r.value, '$[1]') and e.fence > 0;

-- name: renew
update event set vt = :until, updated_at = :now where id in (select value from json_each(:ids));

-- name: checkpoint
update event set state = :state, updated_at = :now where id = :id and fence = :fence and fence > 0 returning vt;
