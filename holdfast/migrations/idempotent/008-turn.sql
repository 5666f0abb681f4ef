-- Turns that are held.
--
--   collect      adds the events right behind a head to its turn: untried_behind those that wait,
--                claimed_behind those of a turn that was given back
--   gather       does the same for a turn that is held already
--   primary_of   the first event of an event's turn
--   renew        extends leases and returns the turns that are lost
--   checkpoint   stores progress with a turn
--   handed_on    number of messages handed on from a root message
--   spent        number of room lines and files of the turns of a root message

-- Adds events right behind a freshly claimed head to its turn. An event that was tried before is
-- worked alone. If the head's last turn recorded steps and was given back, for example because it
-- waits, exactly its events are claimed again: the recorded steps belong to these messages.
create or replace function agent.collect(_turn agent.event, _collect_limit int4)
returns setof agent.event
language plpgsql security invoker
as $$
declare
    _claimed_at timestamptz := _turn.claimed[cardinality(_turn.claimed)];
    _claimed_before timestamptz := _turn.claimed[cardinality(_turn.claimed) - 1];
    _followers int8[];
begin
    if _turn.lane is null or _turn.attempts > 1 then
        return;
    end if;
    if _claimed_before is not null and exists (select from agent.step where event_id = _turn.id)
    then
        _followers := agent.claimed_behind(_turn, _claimed_before, _collect_limit);
    else
        _followers := agent.untried_behind(_turn, _collect_limit);
    end if;
    return query
    update agent.event as event
    -- The time of the head's claim: it tells which events were claimed together.
    set attempts = event.attempts + 1, vt = _turn.vt, claimed = event.claimed || _claimed_at
      , fence = _turn.fence, holder = _turn.holder, updated_at = agent.now()
    where event.id = any (_followers)
    returning event.*;
end
$$;

-- The untried, due events right behind a head, up to a number and 1 MiB: those of the same target
-- and, in the inbox, of the same conversation, person and token.
create or replace function agent.untried_behind(_turn agent.event, _collect_limit int4)
returns int8[]
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _size int4 := octet_length(_turn.event::text);
    _key text[] := case when _turn.queue = 'inbox' then agent.collect_key(_turn.event) end;
begin
    return array
    ( select run.id
      from
      ( select next.id
             , bool_and(next.attempts = 0 and next.vt <= _now and next.target = _turn.target
                 and (_key is null or next.sent_by is not distinct from _turn.sent_by
                   and agent.collect_key(next.event) = _key)) over line as fit
             , sum(octet_length(next.event::text)) over line as size
        from
        ( select id, attempts, vt, target, sent_by, event from agent.event
          where queue = _turn.queue and lane = _turn.lane
            and case when head then 0 else id end > _turn.id
          order by case when head then 0 else id end
          limit _collect_limit - 1
        ) as next
        window line as (order by next.id rows unbounded preceding)
      ) as run
      where run.fit and run.size + _size <= 1024 * 1024
    );
end
$$;

-- The untried events behind a head that were last claimed with it.
create or replace function agent.claimed_behind
( _turn agent.event, _claimed_at timestamptz, _collect_limit int4 ) returns int8[]
language plpgsql security invoker
as $$
begin
    return array
    ( select next.id
      from
      ( select id, attempts, claimed from agent.event
        where queue = _turn.queue and lane = _turn.lane
          and case when head then 0 else id end > _turn.id
        order by case when head then 0 else id end
        limit _collect_limit - 1
      ) as next
      where next.attempts = 0 and next.claimed[cardinality(next.claimed)] = _claimed_at
    );
end
$$;

-- The first event of the turn that an event is in, or was in when the turn was given back: the
-- event itself if it is the head of its lane, or was not claimed with the head. Null if it is gone.
create or replace function agent.primary_of(_id int8) returns int8
language plpgsql stable security invoker
as $$
begin
    return
    ( select coalesce(first.id, event.id)
      from agent.event as event
      left join agent.event as first
        on first.queue = event.queue and first.lane = event.lane
          and case when first.head then 0 else first.id end = 0
          and first.fence = event.fence
          and first.claimed[cardinality(first.claimed)] = event.claimed[cardinality(event.claimed)]
      where event.id = _id
    );
end
$$;

-- Adds waiting events to a held turn and returns them, so that one turn works all pending copies of
-- a room's lines. Adds nothing to a turn that is lost.
create or replace function agent.gather(_id int8, _fence int8, _limit int4)
returns setof agent.event
language plpgsql security invoker
as $$
declare
    _turn agent.event;
begin
    select * into _turn from agent.event
    where id = _id and fence = _fence and _fence > 0
    for update;
    if found then
        return query select * from agent.collect(_turn, _limit);
    end if;
end
$$;

create or replace function agent.handed_on(_root_id int8, _before_id int8) returns int8
language plpgsql stable security invoker
as $$
begin
    return
    ( select count(*) from agent.event
      where root_id = _root_id and id < _before_id and queue = 'inbox' and hops > 0 ) +
    ( select count(*) from agent.event_hist
      where root_id = _root_id and id < _before_id and queue = 'inbox' and hops > 0 );
end
$$;

-- Adds up the room lines and files of the turns of a root message. Each turn counts its own in the
-- state of its event.
create or replace function agent.spent(_root_id int8) returns int8
language plpgsql stable security invoker
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

-- _turns: array of {"ids": […], "fence": n}. Returns the fences of the turns that are lost.
create or replace function agent.renew(_turns jsonb, _lease interval) returns int8[]
language plpgsql security invoker
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
    return array
    (select fence from unnest(_fences) as fence where fence <> all (coalesce(_kept, '{}')));
end
$$;

-- Returns the end of the lease; null if the turn is lost.
create or replace function agent.checkpoint(_ids int8[], _fence int8, _state jsonb)
returns timestamptz
language plpgsql security invoker
as $$
declare
    _held int8[];
    _until timestamptz;
begin
    _held := array
    ( select id from agent.event
      where id = any (_ids) and fence = _fence and _fence > 0
      order by id for update );
    if cardinality(_held) = cardinality(_ids) then
        update agent.event set state = _state, updated_at = agent.now() where id = _ids[1]
        returning vt into _until;
    end if;
    return _until;
end
$$;
