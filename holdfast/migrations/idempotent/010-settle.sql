-- Settling turns. Every settling statement carries the fence and returns what it settled.
--
--   settle          many turns, each with its outcome and the events it emits, in one transaction
--   settle_turns    the same without wake-ups: the caller sends them once the commit is done
--   decide_endings  locks the turns that are still held and decides how their events end
--   put_back        puts events back that are to be worked again
--   release         gives turns back without using an attempt

-- _turns: array of {"ids": […], "fence": n, "outcome": "done" | "retry" | "snooze" | "leave" |
-- "dead" | "release"} with, as wanted, error, error_class, traceback, delay (interval),
-- max_attempts, state, emits (as in put) and records (as in put). `leave` is a snooze that leaves
-- its lane. Returns for each turn, numbered from 1, how it ended: completed, dead, back (to be
-- worked again) or lost. The caller commits right away.
create or replace function agent.settle(_turns jsonb) returns table (turn int8, ended text)
language plpgsql security invoker
as $$
declare
    _ended text[];
    _ready text[];
begin
    select settled.ended, settled.ready into _ended, _ready
    from agent.settle_turns(_turns) as settled;
    perform agent.wake(_ready);
    return query
    select named.nth, named.how from unnest(_ended) with ordinality as named (how, nth);
end
$$;

-- Returns how each turn ended, in the order given, and the queues to wake: those of emitted events.
create or replace function agent.settle_turns(_turns jsonb, out ended text[], out ready text[])
language plpgsql security invoker
as $$
declare
    _endings agent.ending[] := agent.decide_endings(_turns);
    _emits jsonb := agent.emits(_turns, _endings);
    _by_hand text := coalesce(current_setting('holdfast.lanes', true), '');
begin
    -- Lock rows before lanes, as everywhere.
    perform agent.lock_settled_lanes(_endings, _emits);
    perform set_config('holdfast.lanes', 'held', true);
    perform agent.keep_tracebacks(_turns, _endings);
    perform agent.finish(array_agg(ending.id), array_agg(ending.ended), array_agg(ending.error)
        , array_agg(ending.error_class), array_agg(ending.state))
    from unnest(_endings) as ending
    where ending.ended not in ('back', 'left')
    having count(*) > 0;
    if exists (select from unnest(_endings) as ending where ending.ended in ('back', 'left')) then
        perform agent.put_back(_endings);
    end if;
    perform agent.promote(array_agg(ending.queue), array_agg(ending.lane))
    from unnest(_endings) as ending
    where ending.lane is not null and ending.ended <> 'back'
    having count(*) > 0;
    ready := agent.put_emits(_emits, agent.emitted_records(_turns, _endings));
    perform set_config('holdfast.lanes', _by_hand, true);
    ended := array
    ( select coalesce(max(named.how), 'lost')
      from
      ( select ending.turn, case ending.ended when 'left' then 'back' else ending.ended end
        from unnest(_endings) as ending
        union all
        select nth, null from generate_series(1, jsonb_array_length(_turns)::int8) as nth
      ) as named (turn, how)
      group by named.turn
      order by named.turn
    );
end
$$;

-- Locks the lanes of the events that end and those of the emitted events, in one ascending pass.
create or replace function agent.lock_settled_lanes(_endings agent.ending[], _emits jsonb)
returns void
language plpgsql security invoker
as $$
begin
    perform agent.lock_lanes
        (agent.lane_buckets(array_agg(touched.queue), array_agg(touched.lane)))
    from
    ( select ending.queue, ending.lane
      from unnest(_endings) as ending
      where ending.ended <> 'back'
      union all
      -- This lock gives messages of one root their ids in the order of commits, since the hop limit
      -- and the budget count the messages with lesser ids.
      select held.queue, held.lane
      from jsonb_to_recordset(_emits) as emit (queue text, lane text, root_id int8)
      cross join lateral
      ( values (coalesce(emit.queue, 'inbox'), emit.lane)
             , ('root', case coalesce(emit.queue, 'inbox') when 'inbox' then emit.root_id::text end)
      ) as held (queue, lane)
    ) as touched;
end
$$;

-- Stores the tracebacks of failed turns, before those that failed for good go to history. A failure
-- without a traceback removes that of the attempt before, which belongs to another error.
create or replace function agent.keep_tracebacks(_turns jsonb, _endings agent.ending[]) returns void
language plpgsql security invoker
as $$
begin
    if not _turns @? '$[*].error ? (@ != null)' then
        return;
    end if;
    update agent.event as event
    set traceback = given.body ->> 'traceback'
    from jsonb_array_elements(_turns) with ordinality as given (body, turn)
    join unnest(_endings) as ending on ending.turn = given.turn
    where event.id = any
        (array(select failed.id from unnest(_endings) as failed where failed.error is not null))
      and event.id + 0 = ending.id
      and event.traceback is distinct from given.body ->> 'traceback';
    perform agent.keep_attempts(_turns, _endings);
end
$$;

-- Records failed attempts for the page of an event, at most the first hundred of each event.
create or replace function agent.keep_attempts(_turns jsonb, _endings agent.ending[]) returns void
language plpgsql security invoker
as $$
declare
    _ids int8[] := array
    (select failed.id from unnest(_endings) as failed where failed.error is not null);
begin
    insert into agent.attempt (event_id, attempt, at, worker, error, error_class, traceback)
    select event.id, event.attempts, agent.now(), event.holder, ending.error, ending.error_class
         , given.body ->> 'traceback'
    from agent.event as event
    join unnest(_endings) as ending on ending.id = event.id + 0
    join jsonb_array_elements(_turns) with ordinality as given (body, turn)
        on given.turn = ending.turn
    where event.id = any (_ids) and event.attempts <= 100;
end
$$;

-- Makes events of unfinished turns claimable again, each after its delay.
create or replace function agent.put_back(_endings agent.ending[]) returns void
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _ids int8[] := array
    (select ending.id from unnest(_endings) as ending where ending.ended in ('back', 'left'));
    _left int8[] := array
    (select ending.id from unnest(_endings) as ending where ending.ended = 'left');
begin
    update agent.event as event
    set fence = 0, holder = null, vt = _now + least(ending.delay, interval '1000 years')
      , attempts = greatest(event.attempts - ending.unused, 0)
      , last_error = coalesce(ending.error, event.last_error)
      , error_class = case when ending.error is null then event.error_class
          else ending.error_class end
      , updated_at = _now
    from unnest(_endings) as ending
    -- Rows are read by the ids; "+ 0" keeps the planner from finding them through the join.
    where event.id = any (_ids)
      and event.id + 0 = ending.id;
    if _left <> '{}' then
        update agent.event set lane = null, head = true where id = any (_left);
    end if;
    perform agent.report_failed(array_agg(ending.id))
    from unnest(_endings) as ending
    where ending.ended = 'back' and ending.unused = 0
    having count(*) > 0;
end
$$;

-- Locks the events of all turns that are still held, by id and fence, and decides how each ends. A
-- turn that lost one event is lost whole.
create or replace function agent.decide_endings(_turns jsonb) returns agent.ending[]
language plpgsql security invoker
as $$
declare
    _ids int8[] := array(select unnest(ids) from jsonb_to_recordset(_turns) as row (ids int8[]));
    _endings agent.ending[];
begin
    with event as materialized
    ( select id, fence, queue, lane, attempts, max_attempts from agent.event
      where id = any (_ids) and fence > 0
      order by id
      for update
    )
    , held as materialized
    ( select given.*, event.id, event.queue, event.lane, cardinality(given.ids) as size
           , event.attempts >= coalesce(event.max_attempts, given.max_attempts, 3) as used_up
      from agent.read_turns(_turns) as given
      join event on event.fence = given.fence and event.id = any (given.ids)
    )
    select array_agg(row
        ( turn, id, agent.ending_of(outcome, size, used_up), error, error_class
        , case when size > 1 and outcome = 'dead' then interval '0'
            else coalesce(delay, interval '0') end
        , (outcome in ('snooze', 'leave', 'release'))::int4
        -- The state belongs to the turn. Copies on its other events would count its budget again.
        , case when id = ids[1] then state end, queue, lane )::agent.ending
        order by id)
    into _endings
    from held
    where size = 1
       or turn in (select turn from held where size > 1 group by turn, size having count(*) = size);
    return coalesce(_endings, '{}');
end
$$;

-- The turns given to settle, numbered from 1. A fence named twice counts once.
create or replace function agent.read_turns(_turns jsonb) returns table
( turn int8, ids int8[], fence int8, outcome text, error text, error_class text, delay interval
, max_attempts int4, state jsonb )
language plpgsql stable security invoker
as $$
begin
    return query
    select distinct on (named.fence) named.turn, named.ids, named.fence, named.outcome, named.error
         , named.error_class, named.delay, named.max_attempts, named.state
    from rows from
    ( jsonb_to_recordset(_turns) as
      ( ids int8[], fence int8, outcome text, error text, error_class text, delay interval
      , max_attempts int4, state jsonb )
    ) with ordinality as named
        (ids, fence, outcome, error, error_class, delay, max_attempts, state, turn)
    where named.fence > 0
    order by named.fence, named.turn;
end
$$;

-- Decides how the events of a turn end. Retry and dead put all events of a larger turn back, to be
-- worked one by one. `left` means put back without a lane.
create or replace function agent.ending_of(_outcome text, _size int4, _used_up bool) returns text
language plpgsql immutable security invoker
as $$
begin
    if _outcome = 'done' then
        return 'completed';
    elsif _size = 1 and (_outcome = 'dead' or _outcome = 'retry' and _used_up) then
        return 'dead';
    elsif _size = 1 and _outcome = 'leave' then
        return 'left';
    elsif _outcome in ('retry', 'dead', 'snooze', 'leave', 'release') then
        return 'back';
    end if;
    raise invalid_parameter_value
        using message = 'settle knows the outcomes done, retry, snooze, leave, dead and release';
end
$$;

-- _turns: array of {"ids": […], "fence": n}. Returns the same as agent.settle.
create or replace function agent.release(_turns jsonb) returns table (turn int8, ended text)
language plpgsql security invoker
as $$
begin
    perform agent.wake(array
    ( select event.queue
      from jsonb_to_recordset(_turns) as given (ids int8[])
      join agent.event as event on event.id = given.ids[1]
    ));
    return query select * from agent.settle(
        ( select jsonb_agg(body || '{"outcome": "release"}' order by nth)
          from jsonb_array_elements(_turns) with ordinality as given (body, nth) ));
end
$$;
