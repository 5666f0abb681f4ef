-- Taking turns.
--
--   claim        several turns of named targets, each under a fence
--   lock_limits  which targets are limited; places_left says by how much
--   claim_event  one event of a queue, chosen at random among those that wait longest
--   collect      adds the events right behind a head to its turn
--   collect_key  tells conversations and people apart
--   gather       the same as collect for a turn that is held already
--   handed_on    how many messages came of one
--   spent        how many lines and files came of one
--   next_due     when to look again
--   renew        keeps leases; says which are lost
--   checkpoint   keeps progress with a turn
--
-- The settings on these functions pin their plans: a limit that is a parameter makes the planner expect a tenth of
-- the table and sort it, and a plan with a disabled node looks expensive enough to trigger JIT. Events are changed by
-- `id = any (…)` and never in a join: statistics that were gathered while another transaction filled the table, or
-- after it was emptied, let the planner take it for empty, and it would read all of it.

drop function if exists agent.claim(text, text[], int4, interval, text, int4, int4);

-- _at_most limits each target, and targets are then read in the order given; a null entry shares the limit of the
-- target before it. Without it targets are read in random order.
create or replace function agent.claim
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
    _left int4 := _limit;
    _limited text[];
    _target text;
    _most int4;
    _here int4;
    _take int4;
    _ids int8[];
    _fences int8[];
    _turn agent.event;
begin
    perform agent.keep_heads_now();
    if _collect_limit > 1 then
        for _turn in
            select * from agent.claim(_queue, _targets, _limit, _lease, _holder, 1, _max_attempts, _at_most)
        loop
            return next _turn;
            return query select * from agent.collect(_turn, _collect_limit);
        end loop;
        return;
    end if;
    _limited := agent.lock_limits(_queue, _targets);
    for _target, _most in
        select served.target, served.most
        from unnest(_targets, _at_most) with ordinality as served (target, most, place)
        -- At random, so that a target with a long backlog leaves room for the others.
        order by case when _at_most is null then random() else served.place end
    loop
        exit when _left <= 0;
        _here := case when _at_most is null then _left else coalesce(_most, _here) end;
        _take := least(_left, _here);
        if _target = any (_limited) then
            _take := least(_take, agent.places_left(_queue, _target));
        end if;
        continue when _take <= 0;
        _ids := array
        ( select id
          from agent.event
          where queue = _queue and target = _target and head and vt <= _now
            and attempts < coalesce(max_attempts, _max_attempts)
          order by vt, id
          limit _take
          for update skip locked
        );
        continue when _ids = '{}';
        -- Fences are the order of turns; drawn while updating, they would be in the order of ids.
        _fences := array(select nextval('agent.fence') from unnest(_ids));
        return query
        update agent.event as event
        set attempts = event.attempts + 1, vt = _now + _lease, claimed = event.claimed || _now
          , fence = _fences[array_position(_ids, event.id)], holder = _holder, updated_at = _now
        where event.id = any (_ids)
        returning event.*;
        _left := _left - cardinality(_ids);
        _here := _here - cardinality(_ids);
    end loop;
end
$$;

-- Whose limit a target counts for: messages that name no agent are the default agent's.
create or replace function agent.limit_of(_queue text, _target text) returns text
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if _target = '' and _queue = 'inbox' then
        return coalesce((select value ->> 'default' from agent.setting where key = 'routing'), '');
    end if;
    return _target;
end
$$;

-- Which of the targets are limited. Their locks let one claim at a time count and take; all are taken here, in one order,
-- so that no two claims wait for each other.
create or replace function agent.lock_limits(_queue text, _targets text[]) returns text[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_generic_plan
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
      where queue = _queue and target in (select agent.limit_of(_queue, target) from unnest(_targets) as target)
      order by target
      for update
    )
    select array_agg(target) into _locked from locked;
    return array(select target from unnest(_targets) as target where agent.limit_of(_queue, target) = any (_locked));
end
$$;

-- Places left of a limited target, to be asked under its lock.
create or replace function agent.places_left(_queue text, _target text) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_generic_plan
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

-- The conversation and the person of a message: only messages with equal keys may share a turn. A sender without an id is
-- known by name, which never equals an id. holdfast.message.collect_key says the same.
create or replace function agent.collect_key(_event jsonb) returns text[]
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
    select case when _event ? 'kind' then array
        [ nullif(_event ->> 'kind', ''), nullif(_event ->> 'channel', ''), nullif(_event ->> 'conversation', '')
        , nullif(_event ->> 'room', ''), nullif(_event ->> 'sender_id', '')
        , case when nullif(_event ->> 'sender_id', '') is null then nullif(_event ->> 'sender', '') end ]
    else array
        [ 'slack', nullif(_event ->> 'team', ''), nullif(_event ->> 'channel', '')
        , coalesce(nullif(_event ->> 'thread_ts', ''), nullif(_event ->> 'ts', ''))
        , coalesce(nullif(_event ->> 'user', ''), nullif(_event ->> 'bot_id', '')) ]
    end
$$;

-- Adds the events right behind a freshly claimed head to its turn: the run of untried, due events of the same target
-- and, in the inbox, of the same conversation, person and token, while number and size allow. An event that was tried
-- before is worked alone.
create or replace function agent.collect(_turn agent.event, _collect_limit int4) returns setof agent.event
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
    _size int4 := octet_length(_turn.event::text);
    _key text[] := case when _turn.queue = 'inbox' then agent.collect_key(_turn.event) end;
    _followers int8[];
begin
    if _turn.lane is null or _turn.attempts > 1 then
        return;
    end if;
    _followers := array
    ( select run.id
      from
      ( select next.id
             , bool_and(next.attempts = 0 and next.vt <= _now and next.target = _turn.target
                 and (_key is null or next.sent_by is not distinct from _turn.sent_by
                   and agent.collect_key(next.event) = _key)) over line as fit
             , sum(octet_length(next.event::text)) over line as size
        from
        ( select id, attempts, vt, target, sent_by, event
          from agent.event
          where queue = _turn.queue and lane = _turn.lane and case when head then 0 else id end > _turn.id
          order by case when head then 0 else id end
          limit _collect_limit - 1
        ) as next
        window line as (order by next.id rows unbounded preceding)
      ) as run
      where run.fit and run.size + _size <= 1048576
    );
    return query
    update agent.event as event
    set attempts = event.attempts + 1, vt = _turn.vt, claimed = event.claimed || _now
      , fence = _turn.fence, holder = _turn.holder, updated_at = _now
    where event.id = any (_followers)
    returning event.*;
end
$$;

-- The same for one turn that is held already: pending copies of what was said in a room are worked together. Nothing
-- joins a turn that is lost.
create or replace function agent.gather(_id int8, _fence int8, _limit int4) returns setof agent.event
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _turn agent.event;
begin
    select * into _turn from agent.event where id = _id and fence = _fence and _fence > 0 for update;
    if found then
        return query select * from agent.collect(_turn, _limit);
    end if;
end
$$;

create or replace function agent.handed_on(_root_id int8, _before_id int8) returns int8
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return
    ( select count(*) from agent.event
      where root_id = _root_id and id < _before_id and queue = 'inbox' and hops > 0 ) +
    ( select count(*) from agent.event_hist
      where root_id = _root_id and id < _before_id and queue = 'inbox' and hops > 0 );
end
$$;

-- Lines and files that the turns of a root message posted and sent: each turn notes them in the state of its event.
create or replace function agent.spent(_root_id int8) returns int8
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return
    ( select coalesce(sum((state ->> 'spent')::int8), 0)
      from
      ( select state from agent.event where root_id = _root_id and queue = 'inbox' and hops > 0
        union all
        select state from agent.event_hist where root_id = _root_id and queue = 'inbox' and hops > 0
        union all
        select state from agent.event where id = _root_id and queue = 'inbox'
        union all
        select state from agent.event_hist where id = _root_id and queue = 'inbox'
      ) as turn
      where jsonb_typeof(state -> 'spent') = 'number'
    );
end
$$;

create or replace function agent.claim_event
( _max_attempts int4 default 3
, _invisible_for interval default '10m'
, _queue text default 'inbox'
) returns setof agent.event
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
    _window int4 := 100;
    _waiting int8[];
    _id int8;
    _found agent.event;
begin
    perform agent.keep_heads_now();
    <<look>>
    loop
        _waiting := agent.longest_waiting(_queue, _window, _max_attempts);
        -- One by one and by id alone: with more conditions the planner may prefer to walk the ready index.
        for _id in select id from unnest(_waiting) as id order by random() loop
            select * into _found from agent.event where id = _id for update skip locked;
            exit look when _found.head and _found.vt <= _now
                and _found.attempts < coalesce(_found.max_attempts, _max_attempts);
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

-- The ready events of a queue that wait longest, over all targets: each target is read by index.
create or replace function agent.longest_waiting(_queue text, _window int4, _max_attempts int4) returns int8[]
language plpgsql stable security invoker
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
begin
    return array
    ( with recursive served (target) as
      ( ( select target
          from agent.event
          where queue = _queue and head and vt > '-infinity'
          order by queue, target
          limit 1
        )
        union all
        select
        ( select event.target
          from agent.event as event
          where event.queue = _queue and event.head and event.target > served.target and event.vt > '-infinity'
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
        where event.queue = _queue and event.target = served.target and event.head and event.vt <= _now
          and event.attempts < coalesce(event.max_attempts, _max_attempts)
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
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
set plan_cache_mode = force_generic_plan
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
        where event.queue = _queue and event.target = served.target and event.head and event.vt > _now
        order by event.vt, event.id
        limit 1
      ) as first
    );
end
$$;

-- _turns: array of {"ids": […], "fence": n}. Returns the fences of the turns that are lost.
create or replace function agent.renew(_turns jsonb, _lease interval) returns int8[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _now timestamptz := agent.now();
    _ids int8[] := array(select unnest(ids) from jsonb_to_recordset(_turns) as row (ids int8[]));
    _fences int8[] := array(select fence from jsonb_to_recordset(_turns) as row (fence int8));
    _kept int8[];
begin
    with event as materialized
    ( select id, fence from agent.event
      where id = any (_ids) and fence > 0
      order by id
      for update
    )
    , whole as materialized
    ( select turn.fence, turn.ids
      from jsonb_to_recordset(_turns) as turn (ids int8[], fence int8)
      join event on event.fence = turn.fence and event.id = any (turn.ids)
      group by turn.fence, turn.ids
      having count(*) = cardinality(turn.ids)
    )
    , renewed as
    ( update agent.event
      set vt = _now + _lease, updated_at = _now
      where id = any (array(select unnest(ids) from whole))
    )
    select array_agg(fence) into _kept from whole;
    return array(select fence from unnest(_fences) as fence where fence <> all (coalesce(_kept, '{}')));
end
$$;

-- Returns until when the lease holds; null if the turn is lost.
create or replace function agent.checkpoint(_ids int8[], _fence int8, _state jsonb) returns timestamptz
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _until timestamptz;
begin
    perform from agent.event where id = any (_ids) and fence = _fence and _fence > 0 order by id for update;
    if (select count(*) from agent.event where id = any (_ids) and fence = _fence and _fence > 0) = cardinality(_ids) then
        update agent.event set state = _state, updated_at = agent.now() where id = _ids[1] returning vt into _until;
    end if;
    return _until;
end
$$;

-- At most so many turns of a target at once, over all processes; null lifts the limit.
create or replace function agent.limit_target(_queue text, _target text, _running int4) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
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
