-- Ending turns. Events go to history before they are deleted: the trigger on event reads their
-- end from there, when the next event of the lane becomes visible.

-- name: complete
insert or replace into event_hist (
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team, outcome, finished_at
)
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, 0, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  :now, sent_by, routed_text, routed_team, 'completed', :now
from event
where id in (select value from json_each(:ids));

-- name: finish
-- :ends is a JSON array of
-- [id, outcome, error, error_class, error if there is no other, traceback]
insert or replace into event_hist (
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team, outcome, finished_at, traceback
)
select
  e.id, e.queue, e.target, e.lane, e.head, e.event_ts, e.attempts, e.vt, e.claimed, e.event, 0,
  e.holder, e.message_id, e.max_attempts, e.parent_id, e.root_id, e.hops, e.state,
  coalesce(json_extract(r.value, '$[2]'), e.last_error, json_extract(r.value, '$[4]')),
  coalesce(
    json_extract(r.value, '$[3]'), iif(json_extract(r.value, '$[2]') is null, e.error_class, null)
  ),
  e.created_at, :now, e.sent_by, e.routed_text, e.routed_team, json_extract(r.value, '$[1]'), :now,
  case
    when json_extract(r.value, '$[1]') in ('completed', 'discarded') then null
    when json_extract(r.value, '$[2]') is null then e.traceback
    else json_extract(r.value, '$[5]')
  end
from json_each(:ends) as r
join event as e on e.id = json_extract(r.value, '$[0]');

-- name: delete_followers
-- before the heads, or each follower would be promoted just to be deleted
delete from event where id in (select value from json_each(:ids)) and not head;

-- name: delete_ended
delete from event where id in (select value from json_each(:ids));

-- name: back
-- :backs is a JSON array of [id, vt, attempts given back, error, error_class, traceback]
update event
set vt = b.vt, fence = 0, holder = null, attempts = max(attempts - b.given, 0), updated_at = :now,
  last_error = coalesce(b.error, last_error),
  error_class = coalesce(b.error_class, iif(b.error is null, event.error_class, null)),
  traceback = iif(b.error is null, event.traceback, b.traceback)
from (
  select
    json_extract(r.value, '$[0]') as id,
    json_extract(r.value, '$[1]') as vt,
    json_extract(r.value, '$[2]') as given,
    json_extract(r.value, '$[3]') as error,
    json_extract(r.value, '$[4]') as error_class,
    json_extract(r.value, '$[5]') as traceback
  from json_each(:backs) as r
) as b
where event.id = b.id;

-- name: keep_attempts
-- :failures is a JSON array of [id, error, error_class, traceback]; of an event that is tried again
-- and again only the first hundred attempts are kept
insert into attempt (event_id, attempt, at, worker, error, error_class, traceback)
select
  e.id, e.attempts, :now, e.holder, json_extract(r.value, '$[1]'), json_extract(r.value, '$[2]'),
  json_extract(r.value, '$[3]')
from json_each(:failures) as r
join event as e on e.id = json_extract(r.value, '$[0]')
where e.attempts <= 100;

-- name: fence_of
select queue, target, fence from event
where id = :id and (not :leased_only or fence > 0 and vt > :now);

-- name: next_of_lane
select id, vt from event indexed by event_lane
where queue = :queue and lane = :lane and iif(head, 0, id) > 0
order by iif(head, 0, id)
limit 1;

-- name: leave_lane
update event set lane = null where id = :id;

-- name: set_vt
update event set vt = :vt where id = :id;

-- name: is_leased
select fence > 0 and vt > :now from event where id = :id and queue = :queue;

-- name: is_finished
select exists (select 1 from event_hist where id = :id and queue = :queue);

-- name: amend
update event
set event = coalesce(:event, '{}'), routed_text = :routed_text, updated_at = :now
where id = :id and attempts = 0 and fence = 0 and claimed = '[]'
returning queue;

-- name: turn_mates
select id from event indexed by event_leased
where queue = :queue and target = :target and fence > 0 and fence = :fence and id <> :id;
