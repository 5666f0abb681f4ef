-- The journal of an event: steps, the text written so far, and signals.

-- name: holds_primary
-- The primary event alone: a turn never loses another of its events without it.
select 1 from event where id = :id and fence = :fence and fence > 0;

-- name: put_step
-- A `started` that arrives late does not undo the end of the same attempt.
insert into step (
  event_id, key, kind, state, attempt, events, arguments, digest, result, error, signal, due_at,
  tokens, cost, started_at, ended_at
)
values (
  :event_id, :key, :kind, :state, :attempt, :events, :arguments, :digest, :result, :error, :signal,
  :due_at, :tokens, :cost, coalesce(:started_at, :now),
  coalesce(:ended_at, iif(:state = 'started', null, :now))
)
on conflict (event_id, key) do update
set kind = excluded.kind, state = excluded.state, attempt = excluded.attempt,
  events = excluded.events, arguments = coalesce(excluded.arguments, arguments),
  digest = coalesce(excluded.digest, digest), result = excluded.result, error = excluded.error,
  signal = coalesce(excluded.signal, signal), due_at = coalesce(excluded.due_at, due_at),
  tokens = excluded.tokens, cost = excluded.cost,
  started_at = iif(
    attempt = excluded.attempt, min(started_at, excluded.started_at), excluded.started_at
  ),
  ended_at = excluded.ended_at
where not (excluded.state = 'started' and state <> 'started' and attempt = excluded.attempt);

-- name: journal_position
select generation, length from journal where event_id = :event_id;

-- name: put_journal
-- The parts that are null stay as they are.
insert into journal (event_id, generation, length, progress, preview, updated_at)
values (
  :event_id, coalesce(:generation, 0), coalesce(:length, 0), :progress, :preview, :now
)
on conflict (event_id) do update
set generation = coalesce(:generation, generation), length = coalesce(:length, length),
  progress = coalesce(:progress, progress), preview = coalesce(:preview, preview),
  updated_at = :now;

-- name: cut_text
-- the row that begins before :offset and ends after it
update journal_text set text = substr(text, 1, :offset - position)
where event_id = :event_id
  and position = (
    select max(t.position) from journal_text as t
    where t.event_id = :event_id and t.position < :offset
  );

-- name: drop_text
delete from journal_text where event_id = :event_id and position >= :offset;

-- name: put_text
insert into journal_text (event_id, position, text) values (:event_id, :offset, :text);

-- name: journal
select generation, length, progress, preview from journal where event_id = :event_id;

-- name: journal_steps
select
  key, state, attempt, kind, events, digest, error, signal, due_at, tokens, cost, started_at,
  ended_at, iif(:results, arguments, null), iif(:results, result, null)
from step
where event_id = :event_id
order by id;

-- name: journal_text
-- the row that holds :offset and all rows after it
select position, text from journal_text
where event_id = :event_id
  and position >= coalesce(
    (
      select max(t.position) from journal_text as t
      where t.event_id = :event_id and t.position <= :offset
    ),
    0
  )
order by position;

-- name: is_live
select 1 from event where id = :event_id;

-- name: put_signal
insert into signal (event_id, name, value, created_at) values (:event_id, :name, :value, :now);

-- name: next_signal
select id, value from signal indexed by signal_untaken
where event_id in (select value from json_each(:ids)) and name = :name and taken_by is null
order by id
limit 1;

-- name: take_signal
update signal set taken_by = :key where id = :id;

-- name: signalled_waits
-- the first events of turns whose awaited signal has arrived, for any event that was claimed with
-- the first
select distinct e.id, e.queue
from signal as s indexed by signal_untaken
join event as m on m.id = s.event_id
join event as e on e.id = coalesce(
  (
    select h.id from event as h indexed by event_lane
    where h.queue = m.queue and h.lane = m.lane and iif(h.head, 0, h.id) = 0
      and h.fence = m.fence
      and json_extract(h.claimed, '$[#-1]') = json_extract(m.claimed, '$[#-1]')
  ),
  m.id
)
join step as w
  on w.event_id = e.id and w.signal = s.name and w.kind = 'signal' and w.state = 'started'
where s.taken_by is null and (:event_id is null or s.event_id = :event_id)
  and e.fence = 0 and e.vt > :now;

-- name: resume
update event set vt = :now, updated_at = :now where id in (select value from json_each(:ids));

-- name: blank_steps
update step set arguments = null, digest = null, result = null, error = null
where event_id in (select value from json_each(:ids));

-- name: blank_journals
update journal set length = 0, progress = null, preview = null
where event_id in (select value from json_each(:ids));

-- name: blank_attempts
update attempt set error = null, error_class = null, traceback = null
where event_id in (select value from json_each(:ids));

-- name: erase_steps
delete from step where event_id in (select value from json_each(:ids));

-- name: erase_journals
delete from journal where event_id in (select value from json_each(:ids));

-- name: erase_texts
delete from journal_text where event_id in (select value from json_each(:ids));

-- name: erase_signals
delete from signal where event_id in (select value from json_each(:ids));

-- name: erase_attempts
delete from attempt where event_id in (select value from json_each(:ids));

-- name: assume_done
-- Attempt 0 marks the decision, which also counts for other arguments.
update step set state = 'done', attempt = 0, result = 'null', error = null, ended_at = :now
where event_id in (select value from json_each(:ids)) and kind = 'once'
  and state in ('started', 'unknown');

-- name: assume_not_done
update step set state = 'failed', attempt = 0, ended_at = :now
where event_id in (select value from json_each(:ids)) and kind = 'once'
  and state in ('started', 'unknown');
