-- What every put and every settled turn writes, and could do without.

-- It was read by the sweep alone, and cost each put a page; now the sweep walks the keys themselves.
drop index message_key_seen;

-- The look for a follower stands in the condition: what is below it opens every index, and most lanes have none.
drop trigger event_deleted;

-- An event that ended is in history already: its end is the moment the next one becomes visible. What was only
-- deleted, by hand, has no such moment, and SQLite's clock stands in.
create trigger event_deleted after delete on event
when old.head = 1 and old.lane is not null
  and exists (select 1 from event as n indexed by event_lane where n.queue = old.queue and n.lane = old.lane)
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
