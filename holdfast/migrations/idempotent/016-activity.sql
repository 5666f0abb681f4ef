-- Reading the activity that streams show. 002-message.sql and agent.record write it.
--
-- A place is the position of a row in the stream. Ids are drawn before the commit, so a reader that
-- followed them would skip rows that commit late. Places are given to committed rows alone, by one
-- process at a time.
--
--   place_activity     gives places to committed rows
--   read_activity      rows from a place on
--   activity_page      the same, up to a number of bytes
--   activity_span      the oldest place kept, and the next one
--   forget_activity    drops old rows

-- Gives places to at most _limit rows and returns how many. If another process is doing so, returns
-- 0 at once unless _wait is true: the other process gives places to the same rows.
create or replace function agent.place_activity
( _limit int4 default 10000, _wait bool default false ) returns int4
language plpgsql security invoker
as $$
declare
    _last int8;
    _placed int4;
begin
    -- Look before locking: a lock is a write, and usually there is nothing to do.
    perform from agent.activity where place is null order by id limit 1;
    if not found then
        return 0;
    end if;
    if _wait then
        perform from agent.activity_end for update;
    end if;
    select place into _last from agent.activity_end for update skip locked;
    if not found then
        return 0;
    end if;
    -- A separate statement, so that it sees the places given by the last holder of the lock.
    with unplaced as materialized
    ( select id from agent.activity where place is null order by id limit _limit )
    , placed as
    ( select id, _last + row_number() over (order by id) as place from unplaced )
    update agent.activity as activity
    set place = placed.place
    from placed
    where activity.place is null and activity.id = placed.id;
    get diagnostics _placed = row_count;
    update agent.activity_end set place = _last + _placed where _placed > 0;
    return _placed;
end
$$;

create or replace function agent.read_activity(_place int8, _limit int4 default 500)
returns table (place int8, frames text, created_at timestamptz)
language plpgsql security invoker
as $$
begin
    perform agent.place_activity();
    return query
    select activity.place, activity.frames::text, activity.created_at
    from agent.activity as activity
    where activity.place is not null and activity.place >= _place
    order by activity.place
    limit _limit;
end
$$;

create or replace function agent.activity_page(_place int8, _limit int4, _most_bytes int8)
returns table (place int8, frames text, created_at timestamptz)
language plpgsql security invoker
as $$
declare
    _bytes int8 := 0;
begin
    perform agent.place_activity();
    for place, frames, created_at in
        select activity.place, activity.frames::text, activity.created_at
        from agent.activity as activity
        where activity.place is not null and activity.place >= _place
        order by activity.place
        limit _limit
    loop
        return next;
        _bytes := _bytes + octet_length(frames);
        exit when _bytes >= _most_bytes;
    end loop;
end
$$;

create or replace function agent.activity_span(out first int8, out next int8)
language plpgsql security invoker
as $$
begin
    -- Wait for other processes, so that `next` comes after all committed rows for every caller.
    while agent.place_activity(_wait => true) > 0 loop
    end loop;
    next := (select place + 1 from agent.activity_end);
    first := coalesce((select min(place) from agent.activity where place is not null), next);
end
$$;

-- Deletes from the oldest row on, so that the rest has no gaps. Deletes at most 1,000 rows and
-- returns how many.
create or replace function agent.forget_activity(_keep interval) returns int4
language plpgsql security invoker
as $$
declare
    _before timestamptz := agent.now() - _keep;
    _until int8;
    _forgotten int4;
begin
    perform agent.place_activity();
    select coalesce(min(place) filter (where created_at >= _before), max(place) + 1) into _until
    from
    ( select place, created_at from agent.activity
      where place is not null order by place limit 1000
    ) as oldest;
    delete from agent.activity where place < _until;
    get diagnostics _forgotten = row_count;
    return _forgotten;
end
$$;

-- Created once: recreating a trigger would lock the table against running workers. Our own
-- functions store events with their root_id and report them themselves.
do $$
begin
    if not exists
    ( select from pg_catalog.pg_trigger
      where tgrelid = 'agent.event'::regclass and tgname = 'note_insert' ) then
        create trigger note_insert after insert on agent.event for each row
            when (new.queue = 'inbox' and new.root_id is null) execute function agent.note_insert();
    end if;
end
$$;
