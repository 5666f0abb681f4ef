-- A lane has one head: the event that may be claimed. These triggers keep it so, also under changes by hand.
-- The index is named, because with statistics of another day SQLite walks the whole table instead.

create trigger event_inserted after insert on event
when new.head = 0
begin
  update event set head = 1
  where id = new.id
    and not exists (
      select 1 from event as h indexed by event_lane
      where h.queue = new.queue and h.lane = new.lane and iif(h.head, 0, h.id) = 0
    );
end;

-- An event that ended is in history already: its end is the moment the next one becomes visible. What was only
-- deleted, by hand, has no such moment, and SQLite's clock stands in.
create trigger event_deleted after delete on event
when old.head = 1 and old.lane is not null
begin
  update event
  set head = 1,
    vt = max(vt, coalesce(
      (select finished_at from event_hist where id = old.id),
      cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
    ))
  where id = (
    select n.id from event as n indexed by event_lane
    where n.queue = old.queue and n.lane = old.lane
    order by iif(n.head, 0, n.id)
    limit 1
  );
end;

-- A head that moves by hand into a lane with a head would be the second one there: it moves as a follower instead.
create trigger event_moves before update of queue, lane on event
when new.head = 1 and new.lane is not null and (new.queue <> old.queue or new.lane is not old.lane)
  and exists (
    select 1 from event as h indexed by event_lane
    where h.queue = new.queue and h.lane = new.lane and iif(h.head, 0, h.id) = 0
  )
begin
  update event
  set queue = new.queue, lane = new.lane, head = 0, target = new.target, event_ts = new.event_ts,
    attempts = new.attempts, vt = new.vt, claimed = new.claimed, event = new.event, fence = new.fence,
    holder = new.holder, message_id = new.message_id, max_attempts = new.max_attempts, parent_id = new.parent_id,
    root_id = new.root_id, hops = new.hops, state = new.state, last_error = new.last_error,
    error_class = new.error_class, created_at = new.created_at, updated_at = new.updated_at
  where id = old.id;
  select raise(ignore);
end;

create trigger event_moved after update of queue, lane, head on event
when new.queue <> old.queue or new.lane is not old.lane or new.head <> old.head
begin
  -- the lane it left
  update event
  set head = 1,
    vt = max(
      vt, cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
    )
  where head = 0
    and id = (
      select n.id from event as n indexed by event_lane
      where n.queue = old.queue and n.lane = old.lane
      order by iif(n.head, 0, n.id)
      limit 1
    );
  -- the lane it is in now
  update event set head = 1
  where head = 0
    and id = (
      select n.id from event as n indexed by event_lane
      where n.queue = new.queue and n.lane = new.lane
      order by iif(n.head, 0, n.id)
      limit 1
    );
  update event set head = 1 where id = new.id and head = 0 and new.lane is null;
end;
