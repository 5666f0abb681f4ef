-- Rows that a client could not read are refused. SQLite adds no check to a table that is there, so a trigger checks what
-- is inserted; what is changed by hand later is found when it is read.

-- Rows from before become dead letters, with what of them can be read.
insert or replace into event_hist (
  id, queue, target, lane, head, event_ts, attempts, vt, claimed, event, fence, holder, message_id, max_attempts,
  parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at, outcome, finished_at
)
select
  id, queue, target, lane, head,
  max(-62135510400000000, min(event_ts, 253402214399999999)), max(0, min(attempts, 2147483647)),
  max(-62135510400000000, min(vt, 253402214399999999)), iif(json_type(claimed) = 'array', claimed, '[]'), event, 0, holder,
  message_id, max_attempts, parent_id, root_id, max(0, min(hops, 1000000)), state,
  'unreadable row: a moment, a number or the list of claims was out of range', 'Unreadable',
  max(-62135510400000000, min(created_at, 253402214399999999)),
  cast(strftime('%s', 'now') as integer) * 1000000, 'dead', cast(strftime('%s', 'now') as integer) * 1000000
from event
where not (
  event_ts between -62135510400000000 and 253402214399999999 and vt between -62135510400000000 and 253402214399999999
  and created_at between -62135510400000000 and 253402214399999999
  and updated_at between -62135510400000000 and 253402214399999999
  and attempts between 0 and 2147483647 and hops between 0 and 1000000 and fence >= 0 and json_type(claimed) = 'array'
);

delete from event
where not (
  event_ts between -62135510400000000 and 253402214399999999 and vt between -62135510400000000 and 253402214399999999
  and created_at between -62135510400000000 and 253402214399999999
  and updated_at between -62135510400000000 and 253402214399999999
  and attempts between 0 and 2147483647 and hops between 0 and 1000000 and fence >= 0 and json_type(claimed) = 'array'
);

create trigger event_readable before insert on event
when not (
  new.event_ts between -62135510400000000 and 253402214399999999
  and new.vt between -62135510400000000 and 253402214399999999
  and new.created_at between -62135510400000000 and 253402214399999999
  and new.updated_at between -62135510400000000 and 253402214399999999
  and new.attempts between 0 and 2147483647 and new.hops between 0 and 1000000 and new.fence >= 0
  and (new.claimed = '[]' or json_type(new.claimed) = 'array')
)
begin
  select raise(abort, 'a time is not between the years 1 and 9999, a number is negative or too large, or claimed is no list');
end;
