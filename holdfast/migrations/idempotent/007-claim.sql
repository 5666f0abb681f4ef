-- Claiming.
--
--   claim_turns      several turns of named targets, each under a fence; agent.claim is the same
--                    without limits per target
--   claim_event      one event of a queue, chosen at random among those that wait longest
--   lock_limits      locks the limits of targets; slots_left says how many turns one still allows
--   limit_target     sets the limit of a target
--   longest_waiting  the ready events that wait longest
--   next_due         when the next turn of some targets becomes visible
--
-- Events are changed by `id = any (…)` and never in a join; 028-settings.sql says why.

-- _at_most limits each target, and targets are then read in the order given; a null entry shares
-- the limit of the target before it. Without it targets are read in random order.
create or replace function agent.claim_turns
( _queue text
, _targets text[]
, _limit int4
, _lease interval
, _holder text default null
, _collect_limit int4 default 1
, _max_attempts int4 default 3
, _at_most int4[] default null
) returns setof agent.event
language plpgsql security invoker
as $$
declare
    _turn agent.event;
begin
    perform agent.keep_heads_now();
    if _collect_limit <= 1 then
        return query select * from agent.claim_heads
            (_queue, _targets, _limit, _lease, _holder, _max_attempts, _at_most);
        return;
    end if;
    for _turn in
        select * from agent.claim_heads
            (_queue, _targets, _limit, _lease, _holder, _max_attempts, _at_most)
    loop
        return next _turn;
        return query select * from agent.collect(_turn, _collect_limit);
    end loop;
end
$$;

-- Claims heads of targets, without the events behind them.
create or replace function agent.claim_heads
( _queue text, _targets text[], _limit int4, _lease interval, _holder text, _max_attempts int4
, _at_most int4[] ) returns setof agent.event
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _left int4 := _limit;
    _limited text[] := agent.lock_limits(_queue, _targets);
    _target text;
    _most int4;
    _here int4;
    _ids int8[];
begin
    for _target, _most in
        select served.target, served.most
        from unnest(_targets, _at_most) with ordinality as served (target, most, nth)
        -- In random order, so that a target with a long backlog leaves slots for the others.
        order by case when _at_most is null then random() else served.nth end
    loop
        exit when _left <= 0;
        _here := case when _at_most is null then _left else coalesce(_most, _here) end;
        _ids := agent.lock_ready(_queue, _target, _max_attempts, least(_left, _here
            , case when _target = any (_limited) then agent.slots_left(_queue, _target) end));
        continue when _ids = '{}';
        return query
        update agent.event as event
        set attempts = event.attempts + 1, vt = _now + _lease, claimed = event.claimed || _now
          , fence = turn.fence, holder = _holder, updated_at = _now
        -- Fences follow the order of turns; drawn by `set`, they would follow the ids.
        from (select id, nextval('agent.fence') as fence from unnest(_ids) as id) as turn
        where event.id = any (_ids) and event.id + 0 = turn.id
        returning event.*;
        _left := _left - cardinality(_ids);
        _here := _here - cardinality(_ids);
    end loop;
end
$$;

-- Locks ready heads of a target that nobody else has locked, longest waiting first.
create or replace function agent.lock_ready
( _queue text, _target text, _max_attempts int4, _limit int4 ) returns int8[]
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    if _limit <= 0 then
        return '{}';
    end if;
    return array
    ( select id
      from agent.event
      where queue = _queue and target = _target and head and vt <= _now
        and attempts < coalesce(max_attempts, _max_attempts)
      order by vt, id
      limit _limit
      for update skip locked
    );
end
$$;

-- The target whose limit counts: messages that name no agent belong to the default agent.
create or replace function agent.limit_of(_queue text, _target text) returns text
language plpgsql stable security invoker
as $$
begin
    if _target = '' and _queue = 'inbox' then
        return coalesce((select value ->> 'default' from agent.setting where key = 'routing'), '');
    end if;
    return _target;
end
$$;

-- Locks the limits of these targets, and returns the targets that have one. Under the locks, one
-- claim at a time counts running turns and takes more. All locks are taken here, in one order, so
-- that two claims never wait for each other.
create or replace function agent.lock_limits(_queue text, _targets text[]) returns text[]
language plpgsql security invoker
as $$
declare
    _locked text[];
begin
    perform from agent.target_limit where queue = _queue limit 1;
    if not found then
        return '{}';
    end if;
    with locked as materialized
    ( select target
      from agent.target_limit
      where queue = _queue
        and target in (select agent.limit_of(_queue, target) from unnest(_targets) as target)
      order by target
      for update
    )
    select array_agg(target) into _locked from locked;
    return array
    ( select target from unnest(_targets) as target
      where agent.limit_of(_queue, target) = any (_locked)
    );
end
$$;

-- The number of turns that the limit of a target still allows. Call it under the lock of the limit.
create or replace function agent.slots_left(_queue text, _target text) returns int4
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _limit text := agent.limit_of(_queue, _target);
    _together text[] := array[_limit];
begin
    if _limit = agent.limit_of(_queue, '') then
        _together := array['', _limit];
    end if;
    return
    ( select running from agent.target_limit where queue = _queue and target = _limit ) -
    ( select count(*) filter (where head)
      from agent.event
      where queue = _queue and target = any (_together) and attempts > 0 and fence > 0 and vt > _now
    );
end
$$;

-- Allows _running turns of a target at once, over all processes; null lifts the limit.
create or replace function agent.limit_target(_queue text, _target text, _running int4) returns void
language plpgsql security invoker
as $$
begin
    if _running is null then
        delete from agent.target_limit where queue = _queue and target = _target;
    else
        insert into agent.target_limit (queue, target, running) values (_queue, _target, _running)
        on conflict (queue, target) do update set running = excluded.running;
    end if;
end
$$;

create or replace function agent.claim_event
( _max_attempts int4 default 3
, _invisible_for interval default '10m'
, _queue text default 'inbox'
) returns setof agent.event
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _window int4 := 100;
    _waiting int8[];
    _id int8;
    _event agent.event;
begin
    perform agent.keep_heads_now();
    <<look>>
    loop
        _waiting := agent.longest_waiting(_queue, _window, _max_attempts);
        -- Read events one by one and by id alone: with more conditions, the planner may prefer to
        -- walk the ready index.
        for _id in select id from unnest(_waiting) as id order by random() loop
            select * into _event from agent.event where id = _id for update skip locked;
            exit look when _event.head and _event.vt <= _now
                and _event.attempts < coalesce(_event.max_attempts, _max_attempts);
        end loop;
        if cardinality(_waiting) < _window then
            return;
        end if;
        -- All of them are being taken by others: look further back.
        _window := _window * 10;
    end loop;
    return query
    update agent.event as event
    set attempts = event.attempts + 1, vt = _now + _invisible_for, claimed = event.claimed || _now
      , fence = nextval('agent.fence'), holder = null, updated_at = _now
    where event.id = _id
    returning event.*;
end
$$;

-- The events of a queue that wait longest, over all targets; each target is read by index.
create or replace function agent.longest_waiting
( _queue text, _window int4, _max_attempts int4 ) returns int8[]
language plpgsql stable security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    return array
    ( with recursive served (target) as
      ( ( select target from agent.event
          where queue = _queue and head and vt > '-infinity'
          order by queue, target limit 1
        )
        union all
        select
        ( select event.target
          from agent.event as event
          where event.queue = _queue and event.head and event.target > served.target
            and event.vt > '-infinity'
          order by event.queue, event.target
          limit 1
        )
        from served
        where served.target is not null
      )
      select waiting.id
      from served
      cross join lateral
      ( select event.id, event.vt
        from agent.event as event
        where event.queue = _queue and event.target = served.target and event.head
          and event.vt <= _now and event.attempts < coalesce(event.max_attempts, _max_attempts)
        order by event.vt, event.id
        limit _window
      ) as waiting
      order by waiting.vt, waiting.id
      limit _window
    );
end
$$;

create or replace function agent.next_due(_queue text, _targets text[]) returns timestamptz
language plpgsql stable security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    return
    ( select min(first.vt)
      from unnest(_targets) as served (target)
      cross join lateral
      ( select vt
        from agent.event as event
        where event.queue = _queue and event.target = served.target and event.head
          and event.vt > _now
        order by event.vt, event.id
        limit 1
      ) as first
    );
end
$$;
