-- Storing events.
--
--   put           many events and history records, all or none
--   put_one       one event, without what several would need
--   reserve       the first half of a put in bulk, whose events follow by COPY
--   keep_keys     message keys: which of the events are new
--   take_lanes    lane locks: which of the events are heads
--   are_first     whether all of many are
--   record, say, tell  lines of history, one line of a room, frames of activity
--   insert_event  one Slack event, from any transaction

-- _events: array of objects with event and, as wanted, queue, target, lane, message_id, event_ts, vt, max_attempts,
-- parent_id, root_id, hops, sent_by, routed_text, routed_team. Returns the ids in the order given, null where the message id is known already.
-- With _at_once the caller promises to commit right away: lanes are locked now and each row is written once.
create or replace function agent.put(_events jsonb, _records jsonb default null, _at_once bool default false) returns int8[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set work_mem = '64MB'
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
    _default text := agent.activity_agent();
    _received json;
begin
    select array_agg(nextval('agent.event_id_seq')), array_agg(coalesce(queue, 'inbox'))
         , array_agg(case when vt > _now then null else lane end), array_agg(message_id), array_agg(parent_id)
    into _ids, _queues, _lanes, _message_ids, _parents
    from jsonb_to_recordset(_events) as row (queue text, lane text, message_id text, vt timestamptz, parent_id int8);
    -- Keys before lanes, as in a transaction whose lanes wait for its commit.
    _ids := agent.keep_keys(_ids, _queues, _message_ids, _parents);
    if _at_once then
        _heads := agent.take_lanes(_ids, _queues, _lanes);
        perform set_config('holdfast.lanes', 'held', true);
    end if;
    with stored as
    ( insert into agent.event
      ( id, event_ts, vt, event, queue, target, lane, head, message_id, max_attempts, parent_id, root_id, hops
      , created_at, updated_at, sent_by, routed_text, routed_team )
      select id, case when event_ts >= '1970-01-01Z' and event_ts < '2200-01-01Z' then event_ts else _now end
           , coalesce(vt, _now), event, queue, coalesce(target, ''), lane, coalesce(head, true), message_id, max_attempts
           , parent_id, coalesce(root_id, id), coalesce(hops, 0), _now, _now, sent_by, routed_text, routed_team
      from rows from
      ( jsonb_to_recordset(_events) as
        ( target text, vt timestamptz, event_ts timestamptz, max_attempts int4, root_id int8, hops int4, event jsonb
        , sent_by text, routed_text text, routed_team text )
      , unnest(_ids), unnest(_queues), unnest(_lanes), unnest(_message_ids), unnest(_parents), unnest(_heads)
      ) as new
        ( target, vt, event_ts, max_attempts, root_id, hops, event, sent_by, routed_text, routed_team, id, queue, lane, message_id, parent_id, head )
      where id is not null
      returning id, queue, target, message_id, event, sent_by
    )
    select json_agg(json_build_object
             ( 'type', 'message_received', 'messageId', coalesce(message_id, id::text)
             , 'agent', coalesce(nullif(target, ''), _default)
             , 'channel', case when event ? 'kind' then coalesce(event ->> 'channel', '') else 'slack' end
             , 'sender', coalesce(event ->> case when event ? 'kind' then 'sender' else 'user' end, '')
             , 'subject', agent.subject_of(event)
             , 'message', left(event ->> case when event ? 'kind' then 'message' else 'text' end, 2000)
             , 'sentBy', sent_by ))
    into _received
    from stored
    where queue = 'inbox' and _default is not null;
    if _at_once then
        perform set_config('holdfast.lanes', _by_hand, true);
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

-- As put at once, for one event and at half the cost. Returns its id, null if the message id is known already.
create or replace function agent.put_one
( _event jsonb
, _queue text default 'inbox'
, _target text default ''
, _lane text default null
, _message_id text default null
, _event_ts timestamptz default null
, _vt timestamptz default null
, _max_attempts int4 default null
) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := agent.now();
    _by_hand text := coalesce(current_setting('holdfast.lanes', true), '');
    _id int8 := nextval('agent.event_id_seq');
    _default text;
    _head bool;
begin
    if _message_id is not null then
        insert into agent.message_key (queue, message_id, event_id, seen_at) values (_queue, _message_id, _id, _now)
        on conflict do nothing;
        if not found then
            return null;
        end if;
    end if;
    if _vt > _now then
        _lane := null;
    end if;
    if _lane is not null then
        perform agent.lock_lanes(agent.lane_buckets(array[_queue], array[_lane]));
    end if;
    perform set_config('holdfast.lanes', 'held', true);
    -- First as the head: the index of lanes refuses a second one, and there is no plan that could go wrong.
    foreach _head in array array[true, false] loop
        insert into agent.event
        ( id, event_ts, vt, event, queue, target, lane, head, message_id, max_attempts, root_id, created_at, updated_at )
        values
        ( _id, case when _event_ts >= '1970-01-01Z' and _event_ts < '2200-01-01Z' then _event_ts else _now end
        , coalesce(_vt, _now), _event, _queue, _target, _lane, _head, _message_id, _max_attempts, _id, _now, _now )
        on conflict (queue, lane, (case when head then 0 else id end)) where lane is not null do nothing;
        exit when found;
    end loop;
    perform set_config('holdfast.lanes', _by_hand, true);
    if _head then
        perform pg_notify('holdfast', _queue);
    end if;
    if _queue = 'inbox' then
        _default := agent.activity_agent();
    end if;
    if _default is not null then
        insert into agent.activity (frames) values
        ( json_build_array(json_build_object
          ( 'type', 'message_received', 'messageId', coalesce(_message_id, _id::text)
          , 'agent', coalesce(nullif(_target, ''), _default)
          , 'channel', case when _event ? 'kind' then coalesce(_event ->> 'channel', '') else 'slack' end
          , 'sender', coalesce(_event ->> case when _event ? 'kind' then 'sender' else 'user' end, '')
          , 'subject', agent.subject_of(_event)
          , 'message', left(_event ->> case when _event ? 'kind' then 'message' else 'text' end, 2000) )));
    end if;
    return _id;
end
$$;

-- Draws ids, keeps keys and takes lanes. The caller stores the events that got an id, all times as told, with a frame for
-- whoever watches (default_agent says who answers for nobody; null: nobody watches), and commits right away; until then
-- the triggers stay away.
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
set search_path = pg_catalog, pg_temp
as $$
begin
    now := agent.now();
    default_agent := agent.activity_agent();
    ids := agent.keep_keys(array(select nextval('agent.event_id_seq') from unnest(_queues)), _queues, _message_ids);
    heads := agent.take_lanes(ids, _queues, _lanes);
    perform set_config('holdfast.lanes', 'held', true);
end
$$;

-- The ids, null for events whose message id is known already.
create or replace function agent.keep_keys(_ids int8[], _queues text[], _message_ids text[], _parents int8[] default null) returns int8[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
-- Arrays look short to the planner, and two long ones must not be joined by looking at each for each.
set enable_nestloop = off
set jit = off
as $$
declare
    _now timestamptz := agent.now();
    _kept int8[];
begin
    -- Sorted, so that no two wait for each other.
    if cardinality(_ids) >= 100 then
        begin
            -- Most often all are new, and to store them without looking first saves a third.
            insert into agent.message_key (queue, message_id, event_id, parent_id, seen_at)
            select queue, message_id, id, parent_id, _now
            from
            ( select unnest(_queues) as queue, unnest(_message_ids) as message_id, unnest(_ids) as id, unnest(_parents) as parent_id
            ) as given
            where message_id is not null
            order by queue collate "C", message_id collate "C", id;
            return _ids;
        exception when unique_violation then
            null;
        end;
    end if;
    with key as
    ( insert into agent.message_key (queue, message_id, event_id, parent_id, seen_at)
      select queue, message_id, id, parent_id, _now
      from unnest(_queues, _message_ids, _ids, _parents) as given (queue, message_id, id, parent_id)
      where message_id is not null
      order by queue collate "C", message_id collate "C", id
      on conflict do nothing
      returning event_id
    )
    select array_agg(event_id) into _kept from key;
    if cardinality(_kept) = cardinality(_ids) then
        return _ids;
    end if;
    return array
    ( select case when message_id is null or kept.id is not null then given.id end
      from unnest(_ids, _message_ids) with ordinality as given (id, message_id, nth)
      left join unnest(_kept) as kept (id) on kept.id = given.id
      order by given.nth
    );
end
$$;

-- Locks the lanes of events that have an id, wakes who waits for heads, and tells which are heads: without a lane, or the
-- first for a lane that has none.
create or replace function agent.take_lanes(_ids int8[], _queues text[], _lanes text[]) returns bool[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _heads bool[];
begin
    perform agent.lock_lanes(agent.lane_buckets(_queues, _lanes));
    -- Most often all are, and to see that at once costs a quarter.
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
          ( select queue, lane, nth, row_number() over (partition by queue, lane, id is null order by nth) = 1 as first
            from unnest(_ids, _queues, _lanes) with ordinality as given (id, queue, lane, nth)
          ) as new
          order by nth
        );
    end if;
    perform agent.wake(array
    ( select distinct queue
      from (select unnest(_ids) as id, unnest(_queues) as queue, unnest(_heads) as head) as new
      where id is not null and head
    ));
    return _heads;
end
$$;

-- True if events are plainly the first of their lanes: no two lanes hash alike, so that all differ, and no live one lies
-- between the least and the greatest, as in a queue that is worked off or in an import. False says nothing.
create or replace function agent.are_first(_ids int8[], _queues text[], _lanes text[]) returns bool
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    -- Dead rows between them are read, too: where a held snapshot keeps many, a look for each costs less.
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

-- Append-only history: {"agent_id": …} is a line of an agent's conversation, {"team_id": …} one of a team's room,
-- {"frames": …} what is told to whoever watches, as JSON text; all of it in one row.
create or replace function agent.record(_records jsonb) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := agent.now();
begin
    if _records is null or jsonb_array_length(_records) = 0 then
        return;
    end if;
    insert into agent.agent_message
    (agent_id, role, channel, sender, message_id, content, conversation, subject, created_at)
    select agent_id, role, channel, sender, message_id, content, coalesce(conversation, ''), coalesce(subject, ''), _now
    from jsonb_to_recordset(_records) as row
        ( agent_id text, role text, channel text, sender text, message_id text, content text, conversation text
        , subject text )
    where agent_id is not null;
    if _records @? '$[*].team_id' then
        insert into agent.chat_message (team_id, from_agent, message, subject, key, created_at)
        select team_id, from_agent, message, coalesce(subject, ''), coalesce(key, ''), _now
        from jsonb_to_recordset(_records) as row (team_id text, from_agent text, message text, subject text, key text)
        where team_id is not null;
    end if;
    if _records @? '$[*].subject_type' then
        perform agent.keep_observation(line) from jsonb_array_elements(_records) as line where line ? 'subject_type';
    end if;
    insert into agent.activity (frames)
    select ('[' || string_agg(frames, ',' order by nth) || ']')::json
    from rows from (jsonb_to_recordset(_records) as (frames text)) with ordinality as row (frames, nth)
    where frames is not null and agent.activity_agent() is not null
    having count(*) > 0;
end
$$;

-- What is told to whoever watches: an array of frames.
create or replace function agent.tell(_frames json) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into agent.activity (frames) values (_frames);
end
$$;

-- Appends a line to a team's room and returns its id. _key names the line in copies of it.
drop function if exists agent.say(text, text, text);

create or replace function agent.say
( _team_id text
, _from_agent text
, _message text
, _subject text default ''
, _key text default ''
) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _id int8;
begin
    insert into agent.chat_message (team_id, from_agent, message, subject, key, created_at)
    values (_team_id, _from_agent, _message, _subject, _key, agent.now())
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

-- The attempts that an agent has of its own, null where it has none. '' stands for the default agent.
create or replace function agent.attempts_of(_agent text) returns int4
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _routing jsonb := (select value from agent.setting where key = 'routing');
    _attempts jsonb := _routing -> 'attempts' -> coalesce(nullif(_agent, ''), _routing ->> 'default', '');
begin
    return case when jsonb_typeof(_attempts) = 'number' then greatest(_attempts::int4, 1) end;
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
    if _queue = 'inbox' then
        _max_attempts := coalesce(_max_attempts, agent.attempts_of(_agent));
    end if;
    return (agent.put(jsonb_build_array(jsonb_build_object
        ( 'event', _event, 'queue', _queue, 'target', _agent, 'lane', nullif(_lane, ''), 'message_id', _message_id
        , 'event_ts', agent.platform_time(_event ->> 'event_ts'), 'vt', _vt, 'max_attempts', _max_attempts ))))[1];
end
$$;
