-- The activity stream: rows of frames, written in the transaction they describe.

-- name: activity_agent
-- the default agent, and whether the stream is on
select
  coalesce((select json_extract(value, '$.default') from setting where key = 'routing'), ''),
  coalesce((select json_extract(value, '$') from setting where key = 'activity'), 0);

-- name: put_activity
insert into activity (frames, created_at) values (:frames, :now);

-- name: activity
select id, frames, created_at from activity where id >= :position order by id limit :limit;

-- name: activity_span
-- the sequence knows the next position even if no row is left
select
  (select min(id) from activity),
  coalesce((select seq from sqlite_sequence where name = 'activity'), 0) + 1;

-- name: forget_activity
-- deletes from the oldest row up to the first that stays, so that the rest has no holes
delete from activity
where id in (select id from activity order by id limit :batch)
  and id < coalesce(
    (
      select min(o.id)
      from (select id, created_at from activity order by id limit :batch) as o
      where o.created_at >= :before
    ),
    9223372036854775807
  );

-- name: failed
select id, message_id, target, event, sent_by, attempts, last_error, error_class
from event
where id in (select value from json_each(:ids)) and queue = 'inbox'
order by id;

-- name: buried
select id, message_id, target, event, sent_by, attempts, last_error, error_class
from dead_letter
-- the plus keeps SQLite from reading all dead letters of the queue by index
where id in (select value from json_each(:ids)) and +queue = 'inbox'
order by id;

-- name: revived
select id, message_id, target, event, sent_by
from event
where id in (select value from json_each(:ids)) and queue = 'inbox'
order by id;
