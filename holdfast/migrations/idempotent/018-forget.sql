-- Forgetting.
--
--   forget_subject   deletes every trace of a subject; of a person, their messages too. Its parts:
--   forget_events, forget_agent_messages, forget_frames, forget_observations, count_unattributed

-- Replaces the frames about a person or about some messages by frames of type `forgotten`. Streams
-- resume inside a row, so the number of frames must stay: message_received counts twice, since
-- readers derive agent_routed from it. A new row makes readers drop the frames they hold in memory.
-- Returns the number of changed rows.
create or replace function agent.forget_frames(_key text, _names text[]) returns int4
language plpgsql security invoker
as $$
declare
    _changed int4;
begin
    update agent.activity
    set frames =
    ( select json_agg(case when blank then '{"type": "forgotten"}' else frame end order by nth)
      from json_array_elements(frames) with ordinality as stored (frame, nth)
      cross join lateral (select agent.is_frame_about(frame, _key, _names)) as known (blank)
      cross join lateral generate_series(1
          , case when blank and frame ->> 'type' = 'message_received' then 2 else 1 end) )
    where exists
    ( select from agent.frames_of(frames) as frame
      where agent.is_frame_about(frame, _key, _names) );
    get diagnostics _changed = row_count;
    insert into agent.activity (frames) select '[{"type": "forgotten"}]' where _changed > 0;
    return _changed;
end
$$;

create or replace function agent.frames_of(_frames json) returns setof json
language sql immutable parallel safe security invoker
begin atomic
    select frame
    from json_array_elements(case json_typeof(_frames) when 'array' then _frames else '[]' end)
        as frame;
end;

create or replace function agent.is_frame_about(_frame json, _key text, _names text[]) returns bool
language sql immutable parallel safe security invoker
return coalesce(case coalesce(_frame ->> 'subject', '')
    when '' then _frame ->> 'messageId' = any (_names)
    else _frame ->> 'subject' = _key
    end, false);

-- Deletes events of a person, live and finished, and all events that came of them, with their
-- journals. A change of memory about somebody else stays: it still has to reach the index. `names`
-- are the messages' ids, `lines` the keys of room lines that had copies.
create or replace function agent.forget_events
( _key text, out events int8, out history int8, out names text[], out lines text[] )
language plpgsql security invoker
as $$
declare
    _messages int8[];
    _gone int8[];
begin
    select coalesce(array_agg(id), '{}') into _messages
    from
    ( select id, event from agent.event where queue in ('inbox', 'outbox')
      union all
      select id, event from agent.event_hist where queue in ('inbox', 'outbox')
    ) as message
    where agent.subject_of(event) = _key;
    with gone as
    ( delete from agent.event
      where id = any (_messages) or (root_id = any (_messages) and queue <> 'memory')
         or (queue = 'memory' and event ->> 'subject_key' = _key)
      returning id, message_id, event
    )
    select count(*), array_agg(coalesce(message_id, id::text))
         , array_agg(event ->> 'line') filter (where event ? 'line'), array_agg(id)
    into events, names, lines, _gone
    from gone;
    perform agent.erase_journals(_gone);
    with gone as
    ( delete from agent.event_hist
      where id = any (_messages) or root_id = any (_messages)
         or (queue = 'memory' and event ->> 'subject_key' = _key)
      returning id, message_id, event
    )
    select count(*), coalesce(names, '{}') || array_agg(coalesce(message_id, id::text))
         , coalesce(lines, '{}') || array_agg(event ->> 'line') filter (where event ? 'line')
         , array_agg(id)
    into history, names, lines, _gone
    from gone;
    perform agent.erase_journals(_gone);
end
$$;

-- The conversation that channels other than Slack name after an identity (channel:id:… or
-- channel:name:…).
create or replace function agent.own_conversation(_id text) returns text
language sql immutable parallel safe security invoker
return regexp_replace(_id, '^([^:]*):(id|name):', '\1:');

-- Deletes a person's lines of agents' histories. Lines of earlier releases name no subject; they
-- are found by their message, or by a conversation named after the person. `names` are the ids of
-- the messages, those given included.
create or replace function agent.forget_agent_messages
( _key text
, _workspace text
, _id text
, inout names text[]
, out removed int8
)
language plpgsql security invoker
as $$
begin
    with gone as
    ( delete from agent.agent_message
      where subject = _key or (subject = '' and (message_id = any (names)
         or (_workspace = 'default'
           and conversation in (agent.own_conversation(_id), channel || ':' || _id))))
      returning message_id
    )
    select count(*), names || array_agg(message_id) into removed, names from gone;
end
$$;

-- Deletes the observations about a subject, and those about others that came from its messages
-- alone. The latter leave our index at once, and other indexes by the relays. Returns the number.
create or replace function agent.forget_observations
( _workspace text, _type text, _id text, _names text[] ) returns int8
language plpgsql security invoker
as $$
declare
    _removed int8;
    _learned agent.observation;
begin
    delete from agent.observation
    where workspace_id = _workspace and subject_type = upper(_type) and subject_id = _id;
    get diagnostics _removed = row_count;
    for _learned in
        select *
        from agent.observation
        where workspace_id = _workspace and source_message_ids <> '{}'
          and source_message_ids <@ _names
        order by id
        for update
    loop
        perform agent.remove_observation(_workspace, _learned.id);
        perform agent.remove_documents('memory.observation'
            , agent.subject_key(_workspace, _learned.subject_type, _learned.subject_id)
            , array[_learned.id]);
        _removed := _removed + 1;
    end loop;
    return _removed;
end
$$;

-- Counts rows of earlier releases that name no person: forgetting may have missed them. Leaves out
-- zeros.
create or replace function agent.count_unattributed() returns jsonb
language plpgsql stable security invoker
as $$
begin
    return jsonb_strip_nulls(jsonb_build_object
    ( 'unattributed_agent_messages'
    , (select nullif(count(*), 0) from agent.agent_message where subject = '')
    , 'unattributed_chat_messages'
    , (select nullif(count(*), 0) from agent.chat_message where subject = '')
    , 'unattributed_activity',
      ( select nullif(count(*), 0) from agent.activity
        where exists
        ( select from agent.frames_of(frames) as frame
          where frame ->> 'messageId' is not null and coalesce(frame ->> 'subject', '') = '' ) ) ));
end
$$;

-- Deletes the observations of a subject, their events and, of a person, their messages with all
-- that came of them. Message ids stay known for the dedup window, so that a redelivery is a
-- duplicate. Returns the numbers by kind.
create or replace function agent.forget_subject(_workspace text, _type text, _id text) returns jsonb
language plpgsql security invoker
as $$
declare
    _key text := agent.subject_key(_workspace, _type, _id);
    _is_person bool := upper(_type) = 'USER';
    _gone record;
    _names text[];
    _agent_messages int8;
    _lines int8;
    _settings int8;
begin
    _gone := agent.forget_events(_key);
    select names, removed into _names, _agent_messages
    from agent.forget_agent_messages
        (_key, case when _is_person then _workspace end, _id, _gone.names);
    delete from agent.chat_message where subject = _key or (key <> '' and key = any (_gone.lines));
    get diagnostics _lines = row_count;
    -- The default agent of a conversation that is named after the person.
    delete from agent.setting
    where _is_person and _workspace = 'default' and starts_with(key, 'default/')
      and (key = 'default/' || agent.own_conversation(_id)
        or right(key, length(_id) + 1) = ':' || _id
        or starts_with(key, 'default/' || agent.own_conversation(_id) || '/'));
    get diagnostics _settings = row_count;
    return jsonb_build_object
    ( 'events', _gone.events, 'history', _gone.history, 'agent_messages', _agent_messages
    , 'chat_messages', _lines, 'activity', agent.forget_frames(_key, _names)
    , 'settings', _settings
    , 'observations', agent.forget_observations(_workspace, _type, _id, _names)
    ) || agent.count_unattributed();
end
$$;
