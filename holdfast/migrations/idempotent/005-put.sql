-- Storing events.
--
--   put          many events and history records, all or none
--   put_one      one event, without the work that several events need
--   reserve      the first half of a bulk put, whose events follow by COPY
--   store_all, store_one, reserve_events  the same without wake-ups: the caller sends them once
--                the commit is done

-- _events: array of objects with event and, as wanted, queue, target, lane, message_id, event_ts,
-- vt, max_attempts, parent_id, root_id, hops, sent_by, routed_text, routed_team. Returns the ids in
-- the order given, null where the message id is known already. With _at_once the caller promises to
-- commit right away: lanes are locked now and each row is written once.
create or replace function agent.put
( _events jsonb, _records jsonb default null, _at_once bool default false ) returns int8[]
language plpgsql security invoker
as $$
declare
    _ids int8[];
    _ready text[];
begin
    select stored.ids, stored.ready into _ids, _ready
    from agent.store_all(_events, _records, _at_once) as stored;
    perform agent.wake(_ready);
    return _ids;
end
$$;

-- Returns the ids, and the queues to wake. Without _at_once it returns no queues: triggers wake
-- them.
create or replace function agent.store_all
( _events jsonb, _records jsonb, _at_once bool, out ids int8[], out ready text[] )
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _by_hand text := coalesce(current_setting('holdfast.lanes', true), '');
    _ids int8[];
    _queues text[];
    _lanes text[];
    _message_ids text[];
    _parents int8[];
    _heads bool[];
    _frames json;
begin
    select array_agg(nextval('agent.event_id_seq')), array_agg(coalesce(queue, 'inbox'))
         , array_agg(case when vt > _now then null else lane end), array_agg(message_id)
         , array_agg(parent_id)
    into _ids, _queues, _lanes, _message_ids, _parents
    from jsonb_to_recordset(_events) as row
        (queue text, lane text, message_id text, vt timestamptz, parent_id int8);
    -- Lock keys before lanes, like a transaction whose lanes are only locked at its commit.
    _ids := agent.keep_keys(_ids, _queues, _message_ids, _parents);
    if _at_once then
        _heads := agent.take_lanes(_ids, _queues, _lanes);
        perform set_config('holdfast.lanes', 'held', true);
    end if;
    _frames := agent.store_events(_events, _ids, _queues, _lanes, _message_ids, _parents, _heads);
    if _at_once then
        perform set_config('holdfast.lanes', _by_hand, true);
    end if;
    perform agent.record(_records) where _records is not null;
    insert into agent.activity (frames) select _frames where _frames is not null;
    ids := coalesce(_ids, '{}');
    ready := case when _at_once then agent.ready_queues(_ids, _queues, _heads) else '{}' end;
end
$$;

-- Inserts the events of agent.put that have an id. Returns the frames about new messages; null if
-- there are none, or if activity is off.
create or replace function agent.store_events
( _events jsonb, _ids int8[], _queues text[], _lanes text[], _message_ids text[], _parents int8[]
, _heads bool[] ) returns json
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _default text := agent.activity_agent();
    _frames json;
begin
    with stored as
    ( insert into agent.event
      ( id, event_ts, vt, event, queue, target, lane, head, message_id, max_attempts, parent_id
      , root_id, hops, created_at, updated_at, sent_by, routed_text, routed_team )
      select id, case when event_ts >= '1970-01-01Z' and event_ts < '2200-01-01Z' then event_ts
                   else _now end
           , coalesce(vt, _now), event, queue, coalesce(target, ''), lane, coalesce(head, true)
           , message_id, max_attempts, parent_id, coalesce(root_id, id), coalesce(hops, 0), _now
           , _now, sent_by, routed_text, routed_team
      from rows from
      ( jsonb_to_recordset(_events) as
        ( target text, vt timestamptz, event_ts timestamptz, max_attempts int4, root_id int8
        , hops int4, event jsonb, sent_by text, routed_text text, routed_team text )
      , unnest(_ids), unnest(_queues), unnest(_lanes), unnest(_message_ids), unnest(_parents)
      , unnest(_heads)
      ) as new
        ( target, vt, event_ts, max_attempts, root_id, hops, event, sent_by, routed_text
        , routed_team, id, queue, lane, message_id, parent_id, head )
      where id is not null
      returning id, queue, target, message_id, event, sent_by
    )
    select json_agg(agent.message_frame('message_received', id, message_id
        , coalesce(nullif(target, ''), _default), event, sent_by))
    into _frames
    from stored
    where queue = 'inbox' and _default is not null;
    return _frames;
end
$$;

-- Like put with _at_once, but for one event and at half the cost. Returns its id, null if the
-- message id is known already.
create or replace function agent.put_one
( _event jsonb, _queue text default 'inbox', _target text default '', _lane text default null
, _message_id text default null, _event_ts timestamptz default null, _vt timestamptz default null
, _max_attempts int4 default null ) returns int8
language plpgsql security invoker
as $$
declare
    _id int8;
    _head bool;
begin
    select stored.event_id, stored.is_head into _id, _head
    from agent.store_one
        (_event, _queue, _target, _lane, _message_id, _event_ts, _vt, _max_attempts) as stored;
    if _head then
        perform pg_notify('holdfast', _queue);
    end if;
    return _id;
end
$$;

-- Returns the id, and whether to wake the queue.
create or replace function agent.store_one
( _event jsonb, _queue text, _target text, _lane text, _message_id text, _event_ts timestamptz
, _vt timestamptz, _max_attempts int4, out event_id int8, out is_head bool )
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _by_hand text := coalesce(current_setting('holdfast.lanes', true), '');
    _id int8 := nextval('agent.event_id_seq');
    _head bool;
begin
    if not agent.keep_key(_queue, _message_id, _id) then
        return;
    end if;
    _lane := case when _vt > _now then null else _lane end;
    perform pg_advisory_xact_lock(1214803016, agent.lane_bucket(_queue, _lane));
    perform set_config('holdfast.lanes', 'held', true);
    -- Insert it as the head first: if there is one, the unique index of lanes refuses a second one.
    -- This needs no query, whose plan could go wrong.
    foreach _head in array array[true, false] loop
        insert into agent.event
        ( id, event_ts, vt, event, queue, target, lane, head, message_id, max_attempts, root_id
        , created_at, updated_at )
        values
        ( _id, case when _event_ts >= '1970-01-01Z' and _event_ts < '2200-01-01Z' then _event_ts
                 else _now end
        , coalesce(_vt, _now), _event, _queue, _target, _lane, _head, _message_id, _max_attempts
        , _id, _now, _now )
        on conflict (queue, lane, (case when head then 0 else id end)) where lane is not null
            do nothing;
        exit when found;
    end loop;
    perform set_config('holdfast.lanes', _by_hand, true);
    perform agent.report_stored(_id, _queue, _target, _message_id, _event);
    event_id := _id;
    is_head := _head;
end
$$;

-- Stores the frame about one new message.
create or replace function agent.report_stored
( _id int8
, _queue text
, _target text
, _message_id text
, _event jsonb
) returns void
language plpgsql security invoker
as $$
declare
    _default text := case when _queue = 'inbox' then agent.activity_agent() end;
begin
    if _default is not null then
        insert into agent.activity (frames) values
        ( json_build_array(agent.message_frame('message_received', _id, _message_id
          , coalesce(nullif(_target, ''), _default), _event, null)) );
    end if;
end
$$;

-- Draws ids, stores keys and locks lanes. The caller stores the events that got an id, with the
-- returned time as all of their times, and a frame for each, unless default_agent is null: then
-- activity is off. It stands for the agent of messages that name none. The caller then commits
-- right away; until then the triggers are off.
create or replace function agent.reserve
( _queues text[]
, _lanes text[]
, _message_ids text[]
, out ids int8[]
, out heads bool[]
, out now timestamptz
, out default_agent text
)
language plpgsql security invoker
as $$
begin
    select reserved.ids, reserved.heads, reserved.now, reserved.default_agent
    into ids, heads, now, default_agent
    from agent.reserve_events(_queues, _lanes, _message_ids) as reserved;
    perform agent.wake(agent.ready_queues(ids, _queues, heads));
end
$$;

create or replace function agent.reserve_events
( _queues text[]
, _lanes text[]
, _message_ids text[]
, out ids int8[]
, out heads bool[]
, out now timestamptz
, out default_agent text
)
language plpgsql security invoker
as $$
begin
    now := agent.now();
    default_agent := agent.activity_agent();
    ids := agent.keep_keys(array(select nextval('agent.event_id_seq') from unnest(_queues))
        , _queues, _message_ids);
    heads := agent.take_lanes(ids, _queues, _lanes);
    perform set_config('holdfast.lanes', 'held', true);
end
$$;
