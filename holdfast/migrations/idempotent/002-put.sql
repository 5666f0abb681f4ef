-- Storing events.
--
--   put           many events and history records, all or none
--   say           one line of a team's room
--   insert_event  one Slack event, from any transaction

-- _events: array of objects with event and, as wanted, queue, target, lane, message_id, event_ts, vt, max_attempts,
-- parent_id, root_id, hops. Returns the ids in the order given, null where the message id is known already.
-- With _at_once the caller promises to commit right away: lanes are locked now and each row is written once.
create or replace function agent.put(_events jsonb, _records jsonb default null, _at_once bool default false) returns int8[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_generic_plan
set work_mem = '64MB'
as $$
declare
    _now timestamptz := agent.now();
    _by_hand text := coalesce(current_setting('holdfast.lanes', true), '');
    _ids int8[];
    _buckets int4[];
    _first_of_lane int8[];
    _woken text[];
    _default text := agent.activity_agent();
    _received json;
begin
    -- Keys before lanes, as in a transaction whose lanes wait for its commit; sorted, so that no two wait for each other.
    with given as materialized
    ( select nth, nextval('agent.event_id_seq') as id, coalesce(queue, 'inbox') as queue
           , case when vt > _now then null else lane end as lane, message_id, parent_id
      from rows from
      ( jsonb_to_recordset(_events) as (queue text, lane text, message_id text, vt timestamptz, parent_id int8) )
      with ordinality as given (queue, lane, message_id, vt, parent_id, nth)
    )
    , key as
    ( insert into agent.message_key (queue, message_id, event_id, parent_id, seen_at)
      select queue, message_id, id, parent_id, _now
      from given
      where message_id is not null
      order by queue, message_id, id
      on conflict do nothing
      returning event_id
    )
    , known as materialized
    ( select nth, queue, lane, case when message_id is null or key.event_id is not null then id end as id
      from given
      left join key on key.event_id = given.id
    )
    , lane as materialized
    ( select min(id) as first, agent.lane_bucket(queue, lane) as bucket
      from known
      where lane is not null and id is not null
      group by queue, lane
    )
    select (select array_agg(id order by nth) from known)
         , (select array_agg(bucket) from lane)
         , (select array_agg(first) from lane)
    into _ids, _buckets, _first_of_lane;
    if _at_once then
        if _buckets is not null then
            perform agent.lock_lanes(_buckets);
        end if;
        perform set_config('holdfast.lanes', 'held', true);
    end if;
    with stored as
    ( insert into agent.event
        ( id, event_ts, vt, event, queue, target, lane, head, message_id, max_attempts, parent_id, root_id, hops
        , created_at, updated_at )
      select _ids[nth], case when event_ts >= '1970-01-01Z' and event_ts < '2200-01-01Z' then event_ts else _now end
           , coalesce(vt, _now), event, coalesce(queue, 'inbox'), coalesce(target, '')
           , case when vt > _now then null else lane end
           , lane is null or coalesce(vt > _now, false) or first.id is not null and
             ( select 1
               from agent.event as head
               where head.queue = coalesce(new.queue, 'inbox') and head.lane = new.lane
                 and case when head.head then 0 else head.id end = 0
             ) is null
           , message_id, max_attempts, parent_id, coalesce(root_id, _ids[nth]), coalesce(hops, 0), _now, _now
      from rows from
      ( jsonb_to_recordset(_events) as
        ( queue text, target text, lane text, message_id text, vt timestamptz, event_ts timestamptz
        , max_attempts int4, parent_id int8, root_id int8, hops int4, event jsonb
        )
      ) with ordinality as new
        (queue, target, lane, message_id, vt, event_ts, max_attempts, parent_id, root_id, hops, event, nth)
      left join unnest(_first_of_lane) as first (id) on first.id = _ids[nth]
      where _ids[nth] is not null
      returning id, queue, head, target, message_id, event
    )
    select array_agg(distinct queue) filter (where head)
         , json_agg(json_build_object
             ( 'type', 'message_received', 'messageId', coalesce(message_id, id::text)
             , 'agent', coalesce(nullif(target, ''), _default)
             , 'channel', case when event ? 'kind' then coalesce(event ->> 'channel', '') else 'slack' end
             , 'sender', coalesce(event ->> case when event ? 'kind' then 'sender' else 'user' end, '')
             , 'message', left(event ->> case when event ? 'kind' then 'message' else 'text' end, 2000) ))
           filter (where queue = 'inbox' and _default is not null)
    into _woken, _received
    from stored;
    if _at_once then
        perform set_config('holdfast.lanes', _by_hand, true);
        perform agent.wake(_woken);
    end if;
    if _records is not null then
        perform agent.record(_records);
    end if;
    if _received is not null then
        insert into agent.activity (frames) values (_received);
    end if;
    return coalesce(_ids, '{}');
end
$$;

-- Append-only history: {"agent_id": …} is a line of an agent's conversation, {"team_id": …} one of a team's room,
-- {"frames": …} what is told to whoever watches, as JSON text; all of it in one row.
create or replace function agent.record(_records jsonb) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if _records is null or jsonb_array_length(_records) = 0 then
        return;
    end if;
    insert into agent.agent_message (agent_id, role, channel, sender, message_id, content, conversation, created_at)
    select agent_id, role, channel, sender, message_id, content, coalesce(conversation, ''), agent.now()
    from jsonb_to_recordset(_records) as row
        (agent_id text, role text, channel text, sender text, message_id text, content text, conversation text)
    where agent_id is not null;
    insert into agent.chat_message (team_id, from_agent, message, created_at)
    select team_id, from_agent, message, agent.now()
    from jsonb_to_recordset(_records) as row (team_id text, from_agent text, message text)
    where team_id is not null;
    insert into agent.activity (frames)
    select ('[' || string_agg(frames, ',' order by nth) || ']')::json
    from rows from (jsonb_to_recordset(_records) as (frames text)) with ordinality as row (frames, nth)
    where frames is not null
    having count(*) > 0;
end
$$;

-- One line of a team's room; its id.
create or replace function agent.say(_team_id text, _from_agent text, _message text) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _id int8;
begin
    insert into agent.chat_message (team_id, from_agent, message, created_at)
    values (_team_id, _from_agent, _message, agent.now())
    returning id into _id;
    return _id;
end
$$;

-- The lane of an agent's conversation, by the policy the harness wrote to agent.setting: one per conversation
-- (default), one per agent, or none. '' stands for the default agent.
create or replace function agent.lane_of(_agent text, _conversation text) returns text
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _routing jsonb := (select value from agent.setting where key = 'routing');
    _worker text := coalesce(nullif(_agent, ''), _routing ->> 'default', '');
begin
    return case coalesce(_routing -> 'lanes' ->> _worker, 'conversation')
        when 'none' then null
        when 'agent' then _worker
        else _worker || '/' || _conversation
    end;
end
$$;

create or replace function agent.insert_event
( _event jsonb
, _queue text default 'inbox'
, _agent text default null
, _lane text default null
, _message_id text default null
, _vt timestamptz default null
, _max_attempts int4 default null
) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _team text := _event ->> 'team';
    _channel text := _event ->> 'channel';
    _ts text := _event ->> 'ts';
begin
    if _event is null or jsonb_typeof(_event) <> 'object' then
        raise invalid_parameter_value using message = 'insert_event takes a JSON object, the event as Slack sent it';
    end if;
    if _channel is not null and _ts is not null then
        _message_id := coalesce(_message_id, 'slack_' || concat_ws('_', _team, _channel, _ts));
        _lane := coalesce(_lane, agent.lane_of(_agent,
            concat_ws(':', 'slack', _team, _channel, coalesce(_event ->> 'thread_ts', _ts))));
    end if;
    return (agent.put(jsonb_build_array(jsonb_build_object
        ( 'event', _event, 'queue', _queue, 'target', _agent, 'lane', nullif(_lane, ''), 'message_id', _message_id
        , 'event_ts', agent.platform_time(_event ->> 'event_ts'), 'vt', _vt, 'max_attempts', _max_attempts ))))[1];
end
$$;
