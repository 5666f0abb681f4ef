-- Lanes: the first live event of a lane is its head, and only heads are ever claimed.
--
--   lane_buckets    which of 1,024 locks guard lanes
--   lock_lanes      takes such locks, always in ascending order
--   promote         gives lanes without a head their head
--   note_lanes      (trigger) notes which lanes a transaction touches by hand
--   keep_heads      (trigger, at commit) locks what was noted, once, and promotes
--   keep_heads_now  the same before commit, for a claim that follows an insert in one transaction
--
-- Functions that commit at once (put with _at_once, settle) lock their lanes first and write heads themselves: they
-- run with holdfast.lanes = 'held' and the triggers stay away. Everything else, also a caller's long transaction,
-- goes through the triggers and holds lane locks only while it commits.

create or replace function agent.lane_buckets(_queues text[], _lanes text[]) returns int4[]
language plpgsql immutable security invoker parallel safe
set search_path = pg_catalog, pg_temp
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
set search_path = pg_catalog, pg_temp
as $$
begin
    -- Ascending, or two transactions would wait for each other.
    perform pg_advisory_xact_lock(1214803016, bucket)
    from (select distinct bucket from unnest(_buckets) as bucket order by bucket) as sorted;
end
$$;

create or replace function agent.promote(_queues text[], _lanes text[]) returns text[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _now timestamptz := agent.now();
    _next int8[];
    _promoted text[];
begin
    -- The first of a lane is its head; where it is not one, it becomes it.
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
    -- By id alone. In a join, a planner that takes the table for empty reads all of it: so do statistics say that were
    -- gathered while another transaction filled it.
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

-- One wake-up per queue; PostgreSQL folds equal ones of a transaction into one.
create or replace function agent.wake(_queues text[]) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_notify('holdfast', queue) from (select distinct queue from unnest(_queues) as queue) as woken;
end
$$;

-- The note is ",17,503,": at most 1,024 numbers, however many lanes there are.
create or replace function agent.note_lane(_queue text, _lane text) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _touched text := coalesce(nullif(current_setting('holdfast.touched', true), ''), ',');
    _bucket text := (agent.lane_buckets(array[_queue], array[_lane]))[1] || ',';
begin
    if strpos(_touched, ',' || _bucket) = 0 then
        perform set_config('holdfast.touched', _touched || _bucket, true);
    end if;
end
$$;

create or replace function agent.note_lanes() returns trigger
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
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
set search_path = pg_catalog, pg_temp
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
set search_path = pg_catalog, pg_temp
as $$
declare
    _queues text[] := '{}';
    _lanes text[] := '{}';
begin
    perform agent.lock_touched();
    if tg_op <> 'INSERT' then
        _queues := _queues || old.queue;
        _lanes := _lanes || old.lane;
    end if;
    if tg_op <> 'DELETE' then
        _queues := _queues || new.queue;
        _lanes := _lanes || new.lane;
    end if;
    if current_setting('transaction_isolation') = 'read committed' then
        perform agent.wake(agent.promote(_queues, _lanes));
    else
        perform agent.promote_in_old_snapshot(_queues, _lanes);
    end if;
    return null;
end
$$;

-- A snapshot older than the lane's lock may show a head that has ended, or miss one: both are error 40001.
create or replace function agent.promote_in_old_snapshot(_queues text[], _lanes text[]) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from agent.event as head, unnest(_queues, _lanes) as touched (queue, lane)
    where head.queue = touched.queue and head.lane = touched.lane and head.head
    for key share of head;
    perform agent.wake(agent.promote(_queues, _lanes));
exception when unique_violation then
    raise serialization_failure using message = 'the lane got another head meanwhile: run the transaction again';
end
$$;

create or replace function agent.keep_heads_now() returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if coalesce(current_setting('holdfast.touched', true), '') <> '' then
        set constraints agent.keep_heads_insert, agent.keep_heads_update, agent.keep_heads_delete immediate;
        set constraints agent.keep_heads_insert, agent.keep_heads_update, agent.keep_heads_delete deferred;
    end if;
end
$$;

-- Made once: to make a trigger anew would lock the table against running workers.
do $$
declare
    _by_hand text := $when$current_setting('holdfast.lanes', true) is distinct from 'held'$when$;
    _moved text := '((old.queue, old.lane) is distinct from (new.queue, new.lane) or (old.head and not new.head))';
begin
    if exists (select from pg_catalog.pg_trigger where tgrelid = 'agent.event'::regclass and tgname = 'note_lanes_insert') then
        return;
    end if;
    execute format('create trigger note_lanes_insert before insert on agent.event for each row
        when (%s) execute function agent.note_lanes()', _by_hand);
    execute format('create trigger note_lanes_update before update of queue, lane, head on agent.event for each row
        when (%s and %s) execute function agent.note_lanes()', _moved, _by_hand);
    execute format('create trigger note_lanes_delete before delete on agent.event for each row
        when (old.head and old.lane is not null and %s) execute function agent.note_lanes()', _by_hand);
    execute format('create constraint trigger keep_heads_insert after insert on agent.event
        deferrable initially deferred for each row
        when (new.lane is not null and %s) execute function agent.keep_heads()', _by_hand);
    execute format('create constraint trigger keep_heads_update after update of queue, lane, head on agent.event
        deferrable initially deferred for each row
        when (%s and %s) execute function agent.keep_heads()', _moved, _by_hand);
    execute format('create constraint trigger keep_heads_delete after delete on agent.event
        deferrable initially deferred for each row
        when (old.head and old.lane is not null and %s) execute function agent.keep_heads()', _by_hand);
end
$$;
