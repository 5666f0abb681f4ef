-- Events that cannot be read, and where they go.

-- name: live_of
select
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder, message_id, max_attempts,
  parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at, sent_by, routed_text, routed_team
from event
where queue = :queue;

-- name: put_unreadable
insert or replace into event_hist (
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder, message_id, max_attempts,
  parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at, sent_by, routed_text, routed_team, outcome, finished_at
)
values (
  :id, :queue, :target, :lane, :head, :event_ts, :attempts, :vt, :claimed, :event, 0, :holder, :message_id, :max_attempts,
  :parent_id, :root_id, :hops, :state, :error, 'Unreadable', :created_at, :now, :sent_by, :routed_text, :routed_team, 'dead', :now
);

-- name: delete_live
delete from event where id = :id;
