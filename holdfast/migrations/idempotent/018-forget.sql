-- Forgetting.
--
--   forget_subject   deletes every trace of a subject; of a person, their messages too. Its parts:
--   forget_events, forget_agent_messages, forget_frames, forget_observations, count_unattributed
--   erase_conversation   deletes a conversation: its messages and everything derived from them

-- Replaces the frames about a person, or about some messages if the key is null, by frames of type
-- `forgotten`. Streams resume inside a row, so the number of frames must stay: message_received
-- counts twice, since readers derive agent_routed from it. A new row makes readers drop the frames
-- they hold in memory. Returns the number of changed rows.
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
return coalesce(case
    when _key is null or coalesce(_frame ->> 'subject', '') = ''
    then _frame ->> 'messageId' = any (_names)
    else _frame ->> 'subject' = _key
    end, false);

-- Deletes the events of a person, live and finished, and all events that descend from them, with
-- their journals. A queued change of memory about somebody else stays: it still has to reach the
-- index. `names` are the messages' ids, `lines` the keys of room lines that had copies.
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

-- Deletes a person's lines in agents' histories. Lines of earlier releases name no subject; they
-- are found by their message, or by a conversation named after the person. Returns in `names` the
-- given ids of messages and those of the deleted lines.
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

-- Deletes the observations about a subject, and those about others that were learned only from its
-- messages. The latter leave our own index at once, and other indexes through the relays. Returns
-- the number of observations.
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
    _pairings int8;
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
    -- They name a lane, and thus perhaps the person; agent.mend_queue begins anew without them.
    delete from agent.setting where starts_with(key, 'mend/');
    delete from agent.pairing where subject = _key;
    get diagnostics _pairings = row_count;
    return jsonb_build_object
    ( 'events', _gone.events, 'history', _gone.history, 'agent_messages', _agent_messages
    , 'chat_messages', _lines, 'activity', agent.forget_frames(_key, _names)
    , 'settings', _settings, 'pairings', _pairings
    , 'observations', agent.forget_observations(_workspace, _type, _id, _names)
    ) || agent.count_unattributed();
end
$$;

-- The agents that have lines, by one index probe per agent.
create or replace function agent.agents_with_lines() returns setof text
language plpgsql stable security invoker
as $$
begin
    return query
    with recursive agents (agent_id) as
    ( select min(agent_id) from agent.agent_message
      union all
      select (select min(line.agent_id) from agent.agent_message as line
              where line.agent_id > agents.agent_id)
      from agents
      where agents.agent_id is not null
    )
    select agent_id from agents where agent_id is not null;
end
$$;

-- Finds the messages of a conversation, live and finished: by their lines, by the lanes in which
-- they wait, and by the messages that they were handed on from.
create or replace function agent.events_of_conversation(_conversation text, _lanes text[])
returns int8[]
language plpgsql stable security invoker
as $$
declare
    _offset int8 := agent.line_offset();
    _ids int8[] := array
    ( select line.id - _offset
      from agent.agents_with_lines() as agent_id
      join agent.agent_message as line using (agent_id)
      where line.conversation = _conversation and line.role = 'user'
      union
      select id from agent.event
      where queue = 'inbox' and lane = any (_lanes)
        and (agent.read_message(event)).conversation = _conversation
    );
begin
    return array
    ( select unnest(_ids)
      union
      select id from agent.event where queue = 'inbox' and hops > 0 and root_id = any (_ids)
      union
      select id from agent.event_hist where queue = 'inbox' and hops > 0 and root_id = any (_ids)
    );
end
$$;

-- Deletes messages, live and finished, with their responses and journals. _lane is that of their
-- responses. Returns the ids of the messages and responses, as clients know them.
create or replace function agent.erase_events(_ids int8[], _lane text) returns text[]
language plpgsql security invoker
as $$
declare
    _names text[];
    _gone int8[];
begin
    with gone as
    ( delete from agent.event
      where id = any (_ids) or (queue = 'outbox' and lane = _lane)
      returning id, message_id
    ), ended as
    ( delete from agent.event_hist where id = any (_ids) returning id, message_id
    ), answered as
    ( delete from agent.event_hist
      where queue = 'outbox' and root_id = any (_ids)
        and id > (select min(id) from unnest(_ids) as id)
      returning id, message_id
    )
    select array_agg(id), array_agg(coalesce(message_id, id::text)) into _gone, _names
    from (table gone union all table ended union all table answered) as deleted;
    perform agent.erase_journals(_gone);
    return _names;
end
$$;

-- Deletes a conversation: its messages with their journals, responses, lines, frames, files and
-- versions. A running turn loses its lease. Message ids stay known for the dedup window.
-- _lanes are those in which its messages may wait, _channel that of its responses. Returns the
-- numbers of deleted messages and lines, and the ids of deleted files.
create or replace function agent.erase_conversation
( _conversation text, _channel text, _lanes text[], _actor text default null ) returns jsonb
language plpgsql security invoker
as $$
declare
    _ids int8[] := agent.events_of_conversation(_conversation, _lanes);
    _names text[] := agent.erase_events(_ids, _channel || '/' || _conversation);
    _lines int8;
    _files text[];
begin
    with gone as
    ( delete from agent.agent_message
      where agent_id = any (array(select agent.agents_with_lines()))
        and conversation = _conversation
      returning message_id
    )
    select count(*), _names || array_agg(message_id) into _lines, _names from gone;
    with gone as (delete from agent.file where conversation = _conversation returning id)
    select coalesce(array_agg(id), '{}') into _files from gone;
    delete from agent.message_version where conversation = _conversation;
    delete from agent.setting where key = 'default/' || _conversation or starts_with(key, 'mend/');
    delete from agent.conversation where conversation = _conversation;
    perform agent.forget_frames(null, _names);
    perform agent.add_audit(_actor, 'conversation_deleted', agent.pseudonym(_conversation)
        , jsonb_build_object
          ( 'messages', cardinality(_ids), 'lines', _lines, 'files', cardinality(_files) ));
    return jsonb_build_object
    ( 'messages', cardinality(_ids), 'lines', _lines, 'files', to_jsonb(_files) );
end
$$;
