-- Numbers of events by time.

-- name: count_finished
-- The events that finished in a span, by bucket. A discarded event counts nowhere.
with recursive known (queue) as (
  select (select min(queue) from event_hist indexed by event_hist_outcome)
  union all
  select (select min(h.queue) from event_hist as h indexed by event_hist_outcome
    where h.queue > known.queue)
  from known
  where known.queue is not null
),
ended as materialized (
  select h.id, h.queue, h.target, h.outcome, h.created_at, h.finished_at
  from known
  join event_hist as h indexed by event_hist_outcome
    on h.queue = known.queue and h.outcome in ('completed', 'dead', 'expired', 'cancelled')
    and h.finished_at >= :since and h.finished_at < :until
)
select
  finished_at / :width * :width as bucket, queue, target,
  iif(outcome = 'completed', 'completed', 'failed') as kind,
  iif(outcome = 'completed', duration_cell(finished_at - created_at), 0) as cell,
  count(*),
  coalesce(sum((select sum(tokens) from step where event_id = ended.id)), 0),
  coalesce(sum((select sum(cost) from step where event_id = ended.id)), 0.0)
from ended
group by 1, 2, 3, 4, 5
union all
select created_at / :width * :width, queue, target, 'received', 0, count(*), 0, 0.0
from ended
group by 1, 2, 3;

-- name: has_history
select 1 from event_hist limit 1;

-- name: add_counts
-- :counts is a JSON array of the rows of count_finished, :widths one of the widths to store
insert into event_count (width, bucket, queue, target, kind, cell, events, tokens, cost)
select
  w.value, json_extract(c.value, '$[0]') / w.value * w.value, json_extract(c.value, '$[1]'),
  json_extract(c.value, '$[2]'), json_extract(c.value, '$[3]'), json_extract(c.value, '$[4]'),
  sum(json_extract(c.value, '$[5]')), sum(json_extract(c.value, '$[6]')),
  sum(json_extract(c.value, '$[7]'))
from json_each(:counts) as c, json_each(:widths) as w
where json_extract(c.value, '$[0]') >= :oldest
group by 1, 2, 3, 4, 5, 6
on conflict (width, queue, bucket, target, kind, cell) do update
set events = events + excluded.events, tokens = tokens + excluded.tokens,
  cost = cost + excluded.cost;

-- name: drop_counts
delete from event_count
where width = :width and queue in (select distinct queue from event_count) and bucket < :before;

-- name: statistics
-- Adds up the stored sums, the events that finished since, and the live ones. :targets is a JSON
-- array, null for all. :by_target decides whether there is one row per target or per bucket. The
-- last column is a JSON array of the cells of completed events and their numbers.
with ended as materialized (
  select target, outcome, created_at, finished_at, id
  from event_hist indexed by event_hist_outcome
  where queue = :queue and outcome in ('completed', 'dead', 'expired', 'cancelled')
    and finished_at >= :finished_since
),
counted as (
  select bucket, target, kind, cell, events, tokens, cost
  from event_count
  where width = :width and queue = :queue and bucket >= :since
  union all
  select
    finished_at / :width * :width, target, iif(outcome = 'completed', 'completed', 'failed'),
    iif(outcome = 'completed', duration_cell(finished_at - created_at), 0), 1,
    coalesce((select sum(tokens) from step where event_id = ended.id), 0),
    coalesce((select sum(cost) from step where event_id = ended.id), 0.0)
  from ended
  union all
  select created_at / :width * :width, target, 'received', 0, 1, 0, 0.0
  from ended
  where created_at >= :since
  union all
  select created_at / :width * :width, target, 'received', 0, count(*), 0, 0.0
  from event
  where queue = :queue and created_at >= :since
  group by 1, 2
)
select
  key,
  coalesce(sum(events) filter (where kind = 'received'), 0),
  coalesce(sum(events) filter (where kind = 'completed'), 0),
  coalesce(sum(events) filter (where kind = 'failed'), 0),
  sum(tokens), sum(cost),
  json_group_array(json_array(cell, events)) filter (where kind = 'completed')
from (
  select
    iif(:by_target, target, bucket) as key, kind, cell, sum(events) as events,
    sum(tokens) as tokens, sum(cost) as cost
  from counted
  where :targets is null or target in (select value from json_each(:targets))
  group by 1, 2, 3
)
group by 1;
