-- Lanes: the first live event of a lane is its head, and only heads are ever claimed.
--
--   lane_bucket     number of the lock that guards a lane, one of 1,024
--   lock_lanes      takes such locks, always in ascending order
--   promote         gives lanes without a head their head; promote_lane does so for one lane
--   take_lanes      locks the lanes of new events and returns which events are heads
--   wake            wakes the consumers of queues in every process
--   wake_waiting    the same for queues whose wake-ups another process waits for
--   note_lanes      (trigger) notes which lanes a transaction touches by hand
--   keep_heads      (trigger, at commit) locks the noted lanes, once, and promotes
--   keep_heads_now  the same before commit, for a claim that follows an insert in one transaction
--
-- Functions that commit at once (put with _at_once, settle) lock their lanes first and write heads
-- themselves: they run with holdfast.lanes = 'held', which switches the triggers off. Everything
-- else, even a caller's long transaction, goes through the triggers and holds lane locks only while
-- it commits.

create or replace function agent.lane_bucket(_queue text, _lane text) returns int4
language plpgsql immutable strict security invoker parallel safe
as $$
begin
    return hashtextextended(_queue || chr(31) || _lane, 0) & 1023;
end
$$;

create or replace function agent.lane_buckets(_queues text[], _lanes text[]) returns int4[]
language plpgsql immutable security invoker parallel safe
as $$
begin
    return array
    ( select distinct (hashtextextended(queue || chr(31) || lane, 0) & 1023)::int4
      from (select unnest(_queues) as queue, unnest(_lanes) as lane) as touched
      where lane is not null
    );
end
$$;

create or replace function agent.lock_lanes(_buckets int4[]) returns void
language plpgsql security invoker
as $$
begin
    -- In ascending order: otherwise two transactions could wait for each other.
    perform pg_advisory_xact_lock(1214803016, bucket)
    from (select distinct bucket from unnest(_buckets) as bucket order by bucket) as sorted;
end
$$;

-- Returns the queues of the new heads.
create or replace function agent.promote(_queues text[], _lanes text[]) returns text[]
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _next int8[];
    _promoted text[];
begin
    _next := array
    ( select first.id
      from
      ( select distinct queue, lane
        from unnest(_queues, _lanes) as given (queue, lane)
        where lane is not null
      ) as touched
      cross join lateral
      ( select waiting.id, waiting.head
        from agent.event as waiting
        where waiting.queue = touched.queue and waiting.lane = touched.lane
        order by case when waiting.head then 0 else waiting.id end
        limit 1
      ) as first
      where not first.head
    );
    -- Update by id alone: in a join, a planner that believes the table to be empty reads all of it.
    -- It believes so if statistics were gathered while another transaction filled the table.
    with promoted as
    ( update agent.event as event
      set head = true, vt = greatest(event.vt, _now), updated_at = _now
      where event.id = any (_next)
      returning event.queue
    )
    select array_agg(promoted.queue) into _promoted from promoted;
    return coalesce(_promoted, '{}');
end
$$;

-- Promotes in one lane and wakes its queue: half the cost of promote, for transactions that insert
-- tens of thousands of events one by one.
create or replace function agent.promote_lane(_queue text, _lane text) returns void
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _id int8;
    _head bool;
begin
    select id, head into _id, _head
    from agent.event
    where queue = _queue and lane = _lane
    order by case when head then 0 else id end
    limit 1;
    if not _head then
        update agent.event set head = true, vt = greatest(vt, _now), updated_at = _now
        where id = _id;
        perform pg_notify('holdfast', _queue);
    end if;
end
$$;

-- Locks the lanes of events that have an id. Returns which events are heads: those without a lane,
-- and the first one for a lane that has none.
create or replace function agent.take_lanes(_ids int8[], _queues text[], _lanes text[])
returns bool[]
language plpgsql security invoker
as $$
declare
    _heads bool[];
begin
    perform agent.lock_lanes(agent.lane_buckets(_queues, _lanes));
    -- Usually all are heads, and checking that for all at once costs a quarter.
    if cardinality(_ids) >= 100 and agent.are_first(_ids, _queues, _lanes) then
        _heads := array_fill(true, array[cardinality(_ids)]);
    else
        _heads := array
        ( select lane is null or first and
                 ( select 1
                   from agent.event as head
                   where head.queue = new.queue and head.lane = new.lane
                     and case when head.head then 0 else head.id end = 0
                 ) is null
          from
          ( select queue, lane, nth, row_number() over
                 (partition by queue, lane, id is null order by nth) = 1 as first
            from unnest(_ids, _queues, _lanes) with ordinality as given (id, queue, lane, nth)
          ) as new
          order by nth
        );
    end if;
    return _heads;
end
$$;

-- The queues of new events that are ready: the caller wakes them.
create or replace function agent.ready_queues(_ids int8[], _queues text[], _heads bool[])
returns text[]
language plpgsql immutable security invoker
as $$
begin
    return array
    ( select distinct queue
      from (select unnest(_ids) as id, unnest(_queues) as queue, unnest(_heads) as head) as new
      where id is not null and head
    );
end
$$;

-- True if the events are certainly the first of their lanes: all lanes differ, by their hashes, and
-- no live lane lies between the least and the greatest of them, as in an empty queue or during an
-- import. False means unknown.
create or replace function agent.are_first(_ids int8[], _queues text[], _lanes text[]) returns bool
language plpgsql security invoker
as $$
begin
    -- The range read below includes dead rows. If a snapshot keeps many of them, one look-up per
    -- lane costs less.
    if pg_stat_get_dead_tuples('agent.event'::regclass) > 10 * cardinality(_ids) then
        return false;
    end if;
    return not exists
    ( select
      from
      ( select queue, min(lane collate "C") as least, max(lane collate "C") as greatest
             , count(*) > count(distinct hashtextextended(lane, 0)) as alike
        from (select unnest(_ids) as id, unnest(_queues) as queue, unnest(_lanes) as lane) as given
        where id is not null and lane is not null
        group by queue
      ) as new
      where alike or exists
      ( select from agent.event as live
        where live.queue = new.queue and live.lane between new.least and new.greatest )
    );
end
$$;

-- Sends one wake-up per queue; PostgreSQL folds equal ones of a transaction into one.
create or replace function agent.wake(_queues text[]) returns void
language plpgsql security invoker
as $$
begin
    perform pg_notify('holdfast', queue)
    from (select distinct queue from unnest(_queues) as queue) as woken;
end
$$;

-- Key of the lock that processes share while they wait for the wake-ups of a queue.
create or replace function agent.wait_key(_queue text) returns int8
language plpgsql immutable security invoker parallel safe
as $$
begin
    return hashtextextended('holdfast waits ' || _queue, 0);
end
$$;

-- Sends wake-ups for the queues that other sessions wait for. A commit with a notification locks
-- out all others of the server until it is flushed. So this is called after the commit that made
-- events ready, and does not wait for the disk.
create or replace function agent.wake_waiting(_queues text[]) returns void
language plpgsql security invoker
as $$
declare
    _queue text;
begin
    foreach _queue in array _queues loop
        continue when pg_try_advisory_xact_lock(agent.wait_key(_queue));
        perform set_config('synchronous_commit', 'off', true), pg_notify('holdfast', _queue);
    end loop;
end
$$;

-- Notes look like ",17,503,": at most 1,024 numbers, however many lanes there are.
create or replace function agent.note_lane(_queue text, _lane text) returns void
language plpgsql security invoker
as $$
declare
    _touched text := coalesce(nullif(current_setting('holdfast.touched', true), ''), ',');
    _bucket text := agent.lane_bucket(_queue, _lane) || ',';
begin
    if strpos(_touched, ',' || _bucket) = 0 then
        perform set_config('holdfast.touched', _touched || _bucket, true);
    end if;
end
$$;

create or replace function agent.note_lanes() returns trigger
language plpgsql security invoker
as $$
begin
    if tg_op <> 'INSERT' and old.lane is not null then
        perform agent.note_lane(old.queue, old.lane);
    end if;
    if tg_op = 'DELETE' then
        return old;
    end if;
    new.head := new.lane is null;
    if new.lane is not null then
        perform agent.note_lane(new.queue, new.lane);
    else
        perform pg_notify('holdfast', new.queue);
    end if;
    return new;
end
$$;

create or replace function agent.lock_touched() returns void
language plpgsql security invoker
as $$
declare
    _touched text := coalesce(current_setting('holdfast.touched', true), '');
begin
    if _touched <> '' then
        perform set_config('holdfast.touched', '', true);
        perform agent.lock_lanes(string_to_array(trim(both ',' from _touched), ',')::int4[]);
    end if;
end
$$;

create or replace function agent.keep_heads() returns trigger
language plpgsql security invoker
as $$
begin
    if current_setting('holdfast.touched', true) <> '' then
        perform agent.lock_touched();
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        perform agent.promote_in_old_snapshot
            (array[old.queue, new.queue], array[old.lane, new.lane]);
        return null;
    end if;
    if tg_op <> 'INSERT' and old.lane is not null then
        perform agent.promote_lane(old.queue, old.lane);
    end if;
    if tg_op <> 'DELETE' and new.lane is not null then
        perform agent.promote_lane(new.queue, new.lane);
    end if;
    return null;
end
$$;

-- A snapshot older than the lane's lock may show a head that has ended, or miss a new one. Both
-- raise error 40001.
create or replace function agent.promote_in_old_snapshot(_queues text[], _lanes text[]) returns void
language plpgsql security invoker
as $$
begin
    perform from agent.event as head, unnest(_queues, _lanes) as touched (queue, lane)
    where head.queue = touched.queue and head.lane = touched.lane and head.head
    for key share of head;
    perform agent.wake(agent.promote(_queues, _lanes));
exception when unique_violation then
    raise serialization_failure
        using message = 'the lane got another head meanwhile: run the transaction again';
end
$$;

create or replace function agent.keep_heads_now() returns void
language plpgsql security invoker
as $$
begin
    if coalesce(current_setting('holdfast.touched', true), '') <> '' then
        set constraints agent.keep_heads_insert, agent.keep_heads_update, agent.keep_heads_delete
            immediate;
        set constraints agent.keep_heads_insert, agent.keep_heads_update, agent.keep_heads_delete
            deferred;
    end if;
end
$$;

-- Created once: recreating a trigger would lock the table against running workers.
do $$
declare
    _by_hand text := $when$current_setting('holdfast.lanes', true) is distinct from 'held'$when$;
    _moved text := '((old.queue, old.lane) is distinct from (new.queue, new.lane)
        or (old.head and not new.head))';
    _ended text := '(old.head and old.lane is not null)';
begin
    if exists
    ( select from pg_catalog.pg_trigger
      where tgrelid = 'agent.event'::regclass and tgname = 'note_lanes_insert' ) then
        return;
    end if;
    execute format('create trigger note_lanes_insert before insert on agent.event
        for each row when (%s) execute function agent.note_lanes()', _by_hand);
    execute format('create trigger note_lanes_update before update of queue, lane, head
        on agent.event for each row when (%s and %s)
        execute function agent.note_lanes()', _moved, _by_hand);
    execute format('create trigger note_lanes_delete before delete on agent.event
        for each row when (%s and %s) execute function agent.note_lanes()', _ended, _by_hand);
    execute format('create constraint trigger keep_heads_insert after insert on agent.event
        deferrable initially deferred for each row
        when (new.lane is not null and %s) execute function agent.keep_heads()', _by_hand);
    execute format('create constraint trigger keep_heads_update after update of queue, lane, head
        on agent.event deferrable initially deferred for each row when (%s and %s)
        execute function agent.keep_heads()', _moved, _by_hand);
    execute format('create constraint trigger keep_heads_delete after delete on agent.event
        deferrable initially deferred for each row when (%s and %s)
        execute function agent.keep_heads()', _ended, _by_hand);
end
$$;
