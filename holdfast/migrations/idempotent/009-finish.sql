-- Ending events.
--
--   dead_outcomes  the outcomes of dead letters
--   finish         moves events to history (the only function that does)
--   delete_event   completes one event, the way Tiger Agent ends its events
--   ack_event      the end of an event that its client fetched, without a claim
--   cancel_event   ends a running turn, or a waiting event; a worker finds the lease lost
--   amend_event    replaces the payload of an event that was never claimed, or discards it

-- Immutable, so that the planner sees a constant and can use the partial indexes on it.
create or replace function agent.dead_outcomes() returns text[]
language sql immutable security invoker parallel safe
return array['dead', 'expired', 'cancelled'];

-- The error of a dead letter that has none of its own.
create or replace function agent.default_error(_outcome text) returns text
language plpgsql immutable security invoker parallel safe
as $$
begin
    return case _outcome when 'dead' then 'no attempts left' when 'expired' then 'expired' end;
end
$$;

-- A discarded event keeps its ids, times and outcome, for dedup, but nothing that anybody wrote.
-- Returns the number of events moved.
create or replace function agent.finish
( _ids int8[], _outcomes text[], _errors text[] default null, _classes text[] default null
, _states jsonb[] default null ) returns int4
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _moved int4;
begin
    if _outcomes && agent.dead_outcomes() then
        perform agent.report_dead(_ids, _outcomes, _errors, _classes);
        perform agent.keep_lines(array_agg(id))
        from unnest(_ids, _outcomes) as ended (id, outcome)
        where outcome = any (agent.dead_outcomes());
    end if;
    with gone as
    ( delete from agent.event where id = any (_ids) returning * )
    insert into agent.event_hist
    ( id, event_ts, attempts, vt, claimed, event, queue, target, lane, head, fence, holder
    , message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at
    , updated_at, outcome, finished_at, sent_by, traceback, routed_text, routed_team )
    select gone.id, event_ts, attempts, vt, claimed, case when kept then event else '{}' end, queue
         , target, lane, head, 0, holder, message_id, max_attempts, parent_id, root_id, hops
         , case when kept then coalesce(ended.state, gone.state) end
         , case when kept then coalesce(error, last_error
             , case outcome when 'completed' then null else agent.default_error(outcome) end) end
         , case when kept and error is null then gone.error_class
             when kept then ended.error_class end
         , created_at, _now, outcome, _now, sent_by
         , case when outcome = any (agent.dead_outcomes()) then traceback end
         , case when kept then routed_text end, case when kept then routed_team end
    from gone
    join unnest(_ids, _outcomes, _errors, _classes, _states)
        as ended (id, outcome, error, error_class, state) on ended.id = gone.id
    cross join lateral (select outcome <> 'discarded') as retention (kept);
    get diagnostics _moved = row_count;
    return _moved;
end
$$;

create or replace function agent.delete_event(_id int8, _fence int8 default null) returns bool
language plpgsql security invoker
as $$
begin
    perform from agent.event
    where id = _id and (_fence is null or fence = _fence and fence > 0)
    for update;
    if not found then
        return false;
    end if;
    perform agent.keep_lines(array[_id]);
    return agent.finish(array[_id], array['completed']) = 1;
end
$$;

-- A further argument would make a second function of the name.
drop function if exists agent.ack_event(int8);

-- Returns acked (even if it was acked before), busy (a worker holds it) or unknown.
create or replace function agent.ack_event(_id int8, _queue text default 'outbox') returns text
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _leased bool;
begin
    select fence > 0 and vt > _now into _leased from agent.event
    where id = _id and queue = _queue
    for update;
    if _leased then
        return 'busy';
    end if;
    if found and agent.finish(array[_id], array['completed']) = 1
        or exists (select from agent.event_hist where id = _id and queue = _queue) then
        return 'acked';
    end if;
    return 'unknown';
end
$$;

drop function if exists agent.cancel_event(int8, text);

-- Without _leased_only, it also ends an event that waits for its turn, a moment or a signal.
create or replace function agent.cancel_event
( _id int8
, _reason text default 'by hand'
, _leased_only bool default true
) returns bool
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _fence int8;
begin
    select fence into _fence from agent.event
    where id = _id and (not _leased_only or fence > 0 and vt > _now)
    for update;
    if not found then
        return false;
    end if;
    update agent.event set traceback = null where id = _id and traceback is not null;
    perform agent.finish(array[_id], array['cancelled'], array['cancelled: ' || _reason]);
    update agent.event set fence = 0, holder = null, vt = _now, updated_at = _now
    where attempts > 0 and fence > 0 and fence = _fence;
    return true;
end
$$;

-- Refuses events that are leased or were claimed before, since their payload has been read.
create or replace function agent.amend_event
( _id int8
, _event jsonb
, _routed_text text default null
) returns bool
language plpgsql security invoker
as $$
begin
    update agent.event set event = coalesce(_event, '{}'), routed_text = _routed_text
        , updated_at = agent.now()
    where id = _id and attempts = 0 and fence = 0 and claimed = '{}';
    if not found then
        return false;
    end if;
    if _event is null then
        perform agent.finish(array[_id], array['discarded']);
    end if;
    return true;
end
$$;
