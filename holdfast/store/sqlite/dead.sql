-- Dead letters and history. The parts of a filter that do not matter are null. The view
-- dead_letter holds the rows of event_hist that are dead letters.

-- name: finished
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team, outcome, finished_at, traceback
from event_hist
where (:queue is null or queue = :queue)
  and (:target is null or target = :target)
  and (:outcomes is null or outcome in (select value from json_each(:outcomes)))
  and (:error is null or instr(lower(last_error), lower(:error)) > 0)
  and id < :before_id and id > :since_id
order by id desc
limit :limit;

-- name: finished_by_id
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team, outcome, finished_at, traceback
from event_hist
where id in (select value from json_each(:ids))
  and (:queue is null or queue = :queue)
  and (:target is null or target = :target)
  and (:outcomes is null or outcome in (select value from json_each(:outcomes)))
  and (:error is null or instr(lower(last_error), lower(:error)) > 0)
  and id < :before_id and id > :since_id
order by id desc
limit :limit;

-- name: dead
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team, outcome, finished_at, traceback
from dead_letter
where (:queue is null or queue = :queue)
  and (:target is null or target = :target)
  and (:outcomes is null or outcome in (select value from json_each(:outcomes)))
  and (:error is null or instr(lower(last_error), lower(:error)) > 0)
  and id < :before_id and id > :since_id
order by id desc
limit :limit;

-- name: dead_by_id
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team, outcome, finished_at, traceback
from dead_letter
where id in (select value from json_each(:ids))
  and (:queue is null or queue = :queue)
  and (:target is null or target = :target)
  and (:outcomes is null or outcome in (select value from json_each(:outcomes)))
  and (:error is null or instr(lower(last_error), lower(:error)) > 0)
  and id < :before_id and id > :since_id
order by id desc
limit :limit;

-- name: dead_since
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team, outcome, finished_at, traceback
from dead_letter
where queue = :queue and (finished_at, id) > (:after, :after_id)
order by finished_at, id
limit :limit;

-- name: dead_ids
select json_group_array(id)
from dead_letter
where (:queue is null or queue = :queue)
  and (:target is null or target = :target)
  and (:outcomes is null or outcome in (select value from json_each(:outcomes)))
  and (:error is null or instr(lower(last_error), lower(:error)) > 0);

-- name: existing_dead_ids
select json_group_array(id)
from dead_letter
where id in (select value from json_each(:ids))
  and (:queue is null or queue = :queue)
  and (:target is null or target = :target)
  and (:outcomes is null or outcome in (select value from json_each(:outcomes)))
  and (:error is null or instr(lower(last_error), lower(:error)) > 0);

-- name: still_dead
select id, queue, error_class from dead_letter where id in (select value from json_each(:ids))
order by id;

-- name: revive
-- Values changed by hand that the checks of a live event refuse are brought into range.
insert into event (
  id, queue, target, lane, head, event_ts, attempts, vt,
  claimed, event, fence, holder, message_id, max_attempts, parent_id, root_id, hops,
  state, last_error, error_class, created_at, updated_at, sent_by, routed_text, routed_team
)
select
  id, queue, target, lane, lane is null, max(:first, min(event_ts, :last)), 0, :now,
  case
    when json_valid(claimed) and json_type(claimed) = 'array' then (
      select json_group_array(value) from json_each(claimed)
      where value between :first and :last and type = 'integer'
    )
    else '[]'
  end,
  iif(json_valid(event), event, json_object('kind', 'unreadable', 'message', event)),
  0, null, message_id, max_attempts, parent_id, root_id, max(0, min(hops, 1000000)),
  iif(json_valid(state), state, null), last_error, error_class,
  max(:first, min(created_at, :last)), :now, sent_by, routed_text, routed_team
from event_hist
where id in (select value from json_each(:ids))
order by id
on conflict (id) do nothing;

-- name: revive_keys
insert into message_key (queue, message_id, event_id, parent_id, seen_at)
select queue, message_id, id, parent_id, :now
from event_hist
where id in (select value from json_each(:ids)) and message_id is not null
order by id
on conflict (queue, message_id) do nothing;

-- name: leave_history
delete from event_hist where id in (select value from json_each(:ids));

-- name: discard
update event_hist
set outcome = 'discarded', event = '{}', routed_text = null, routed_team = null, state = null,
  last_error = null, error_class = null, traceback = null, updated_at = :now
where id in (select value from json_each(:ids));

-- name: replayable
select
  h.queue, h.target, h.lane, h.event_ts, h.event, h.message_id, h.max_attempts, h.sent_by,
  h.routed_text, h.routed_team, h.id
from json_each(:ids) as r
join event_hist as h on h.id = r.value
where h.outcome <> 'discarded'
order by r.key;

-- name: live_of
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at,
  updated_at, sent_by, routed_text, routed_team
from event
where queue = :queue;

-- name: put_unreadable
insert or replace into event_hist (
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder,
  message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class,
  created_at, updated_at, sent_by, routed_text, routed_team, outcome, finished_at
)
values (
  :id, :queue, :target, :lane, :head, :event_ts, :attempts, :vt, :claimed, :event, 0, :holder,
  :message_id, :max_attempts, :parent_id, :root_id, :hops, :state, :error, 'Unreadable',
  :created_at, :now, :sent_by, :routed_text, :routed_team, 'dead', :now
);

-- name: delete_live
delete from event where id = :id;
