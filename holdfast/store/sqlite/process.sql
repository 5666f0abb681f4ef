-- Processes, and the turns of those that died.

-- name: put_process
insert into process (id, host, started_at, seen_at, last_wake_reason, turns, serves, problems)
values (:id, :host, :started_at, :seen_at, :last_wake_reason, :turns, :serves, :problems)
on conflict (id) do update
set host = excluded.host, started_at = excluded.started_at, seen_at = excluded.seen_at,
  last_wake_reason = excluded.last_wake_reason, turns = excluded.turns, serves = excluded.serves,
  problems = excluded.problems;

-- name: update_process
update process
set seen_at = :seen_at, last_wake_reason = :last_wake_reason, turns = :turns, problems = :problems
where id = :id;

-- name: processes
select id, host, started_at, seen_at, last_wake_reason, turns, serves, problems
from process
order by started_at, id;

-- name: delete_process
delete from process where id = :id;

-- name: held_by
-- :max_attempts is a JSON object by queue, for events without a number of their own
select id, queue,
  attempts >= coalesce(
    max_attempts, (select value from json_each(:max_attempts) where key = event.queue), :otherwise
  ) as used_up
from event indexed by event_leased
where fence > 0 and holder = :id;

-- name: touch
-- Skips a fence. Other processes notice commits, and SQLite skips a commit without a change.
update fence set value = value + 1 where one = 1;
