-- Observations. Every change writes its event to the queue `memory` in the same transaction.
--
--   keep_observation     insert or replace one, without its event
--   save_observation     the same with its event
--   remove_observation   for good, or softly
--   merge_observations   two become one
--   forget_subject       deletes every trace of a subject, of a person their messages too; its parts:
--   forget_events, forget_agent_messages, forget_frames, forget_observations, count_unattributed

create or replace function agent.subject_key(_workspace text, _type text, _id text) returns text
language sql immutable security invoker parallel safe
set search_path = pg_catalog, pg_temp
return _workspace || ':' || upper(_type) || ':' || _id;

-- The event that tells the index of a change; its id is the position that a reader may wait for.
create or replace function agent.put_memory_event
( _operation text
, _workspace text
, _id text
, _subject_key text
, _version int8
) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (agent.put(jsonb_build_array(jsonb_build_object
        ( 'queue', 'memory', 'lane', _subject_key
        , 'event', jsonb_build_object
            ( 'kind', 'memory', 'workspace_id', _workspace, 'observation_local_id', _id, 'subject_key', _subject_key
            , 'operation', _operation, 'version', _version )))))[1];
end
$$;

-- Insert or replace, without an event: for a caller who puts that himself.
create or replace function agent.keep_observation(_observation jsonb) returns agent.observation
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _kept agent.observation;
begin
    insert into agent.observation as known
    ( workspace_id, id, subject_type, subject_id, observer, type, content, source_message_ids, confidence, version
    , created_at, updated_at )
    select workspace_id, id, upper(subject_type), subject_id, coalesce(observer, ''), coalesce(type, 'EXPLICIT'), content
         , coalesce(source_message_ids, '{}'), coalesce(confidence, 0.9), nextval('agent.observation_version')
         , agent.now(), agent.now()
    from jsonb_to_record(_observation) as row
        ( workspace_id text, id text, subject_type text, subject_id text, observer text, type text, content text
        , source_message_ids text[], confidence float8 )
    on conflict (workspace_id, id) do update
    -- The version is drawn here, when the row is locked: of two who save it at once the later one has the higher.
    set subject_type = excluded.subject_type, subject_id = excluded.subject_id, observer = excluded.observer
      , type = excluded.type, content = excluded.content, source_message_ids = excluded.source_message_ids
      , confidence = excluded.confidence, version = nextval('agent.observation_version')
      , updated_at = excluded.updated_at, deleted_at = null
    returning * into _kept;
    return _kept;
end
$$;

-- _observation: workspace_id, id, subject_type, subject_id, content and, as wanted, observer, type, source_message_ids
-- and confidence. Returns its position.
create or replace function agent.save_observation(_observation jsonb) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _before text;
    _saved agent.observation;
begin
    select case when deleted_at is null then agent.subject_key(workspace_id, subject_type, subject_id) end into _before
    from agent.observation
    where workspace_id = _observation ->> 'workspace_id' and id = _observation ->> 'id'
    for update;
    _saved := agent.keep_observation(_observation);
    if _before <> agent.subject_key(_saved.workspace_id, _saved.subject_type, _saved.subject_id) then
        perform agent.put_memory_event('DELETE', _saved.workspace_id, _saved.id, _before, _saved.version);
    end if;
    return agent.put_memory_event('UPSERT', _saved.workspace_id, _saved.id
        , agent.subject_key(_saved.workspace_id, _saved.subject_type, _saved.subject_id), _saved.version);
end
$$;

-- Returns its position, null where there is none.
create or replace function agent.remove_observation(_workspace text, _id text, _soft bool default false) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _gone agent.observation;
begin
    if _soft then
        update agent.observation
        set deleted_at = agent.now(), updated_at = agent.now(), version = nextval('agent.observation_version')
        where workspace_id = _workspace and id = _id and deleted_at is null
        returning * into _gone;
    else
        delete from agent.observation where workspace_id = _workspace and id = _id returning * into _gone;
        _gone.version := nextval('agent.observation_version');
    end if;
    if _gone.id is null then
        return null;
    end if;
    return agent.put_memory_event('DELETE', _gone.workspace_id, _gone.id
        , agent.subject_key(_gone.workspace_id, _gone.subject_type, _gone.subject_id), _gone.version);
end
$$;

create or replace function agent.merge_observations(_winner text, _loser text, _merged jsonb) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _workspace text := _merged ->> 'workspace_id';
    _key text := agent.subject_key(_workspace, _merged ->> 'subject_type', _merged ->> 'subject_id');
    _keys jsonb;
    _id text;
begin
    -- Sorted, so that two merges of the same pair do not wait for each other.
    with pair as
    ( select id, agent.subject_key(workspace_id, subject_type, subject_id) as key
      from agent.observation
      where workspace_id = _workspace and id in (_winner, _loser) and deleted_at is null
      order by id
      for update
    )
    select coalesce(jsonb_object_agg(id, key), '{}') into _keys from pair;
    foreach _id in array array[_winner, _loser] loop
        if _winner = _loser then
            raise exception 'observation % cannot be merged with itself', quote_literal(_id);
        elsif not _keys ? _id then
            raise exception 'there is no observation % in workspace %', quote_literal(_id), quote_literal(_workspace);
        elsif _keys ->> _id <> _key then
            raise exception 'observation % is about %, not %', quote_literal(_id), _keys ->> _id, _key;
        end if;
    end loop;
    perform agent.remove_observation(_workspace, _loser, true);
    return agent.save_observation(_merged || jsonb_build_object('id', _winner));
end
$$;

create or replace function agent.purge_observations(_before timestamptz) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _purged int4;
begin
    delete from agent.observation where deleted_at < _before;
    get diagnostics _purged = row_count;
    -- A stone holds up late writers, and none is a day late.
    delete from agent.knowledge where deleted and updated_at < greatest(_before, agent.now() - interval '1 day');
    return _purged;
end
$$;

-- Replaces the frames about a person or about some messages by frames of type `forgotten`. Their number stays, since
-- streams resume inside a row: message_received counts twice, as readers are told of agent_routed, too. A new row makes
-- readers drop what they hold in memory. Returns the number of changed rows.
drop function if exists agent.forget_frames(text[]);

create or replace function agent.forget_frames(_key text, _names text[]) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _changed int4;
begin
    update agent.activity
    set frames =
    ( select json_agg(case when blank then '{"type": "forgotten"}' else frame end order by nth)
      from json_array_elements(frames) with ordinality as told (frame, nth)
      cross join lateral (select agent.is_frame_about(frame, _key, _names)) as known (blank)
      cross join lateral generate_series(1, case when blank and frame ->> 'type' = 'message_received' then 2 else 1 end) )
    where exists
    ( select from json_array_elements(case json_typeof(frames) when 'array' then frames else '[]' end) as frame
      where agent.is_frame_about(frame, _key, _names) );
    get diagnostics _changed = row_count;
    insert into agent.activity (frames) select '[{"type": "forgotten"}]' where _changed > 0;
    return _changed;
end
$$;

create or replace function agent.is_frame_about(_frame json, _key text, _names text[]) returns bool
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
return coalesce(case coalesce(_frame ->> 'subject', '')
    when '' then _frame ->> 'messageId' = any (_names)
    else _frame ->> 'subject' = _key
    end, false);

-- Deletes events of a person, live and finished, and all that came of them. A change of memory about somebody else stays:
-- it still has to reach the index. `names` are the messages' ids, `lines` the keys of room lines that had copies.
create or replace function agent.forget_events
( _key text
, out events int8
, out history int8
, out names text[]
, out lines text[]
)
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _said int8[];
begin
    select coalesce(array_agg(id), '{}') into _said
    from
    ( select id, event from agent.event where queue in ('inbox', 'outbox')
      union all
      select id, event from agent.event_hist where queue in ('inbox', 'outbox')
    ) as message
    where agent.subject_of(event) = _key;
    with gone as
    ( delete from agent.event
      where id = any (_said) or (root_id = any (_said) and queue <> 'memory')
         or (queue = 'memory' and event ->> 'subject_key' = _key)
      returning id, message_id, event
    )
    select count(*), array_agg(coalesce(message_id, id::text)), array_agg(event ->> 'line') filter (where event ? 'line')
    into events, names, lines
    from gone;
    with gone as
    ( delete from agent.event_hist
      where id = any (_said) or root_id = any (_said) or (queue = 'memory' and event ->> 'subject_key' = _key)
      returning id, message_id, event
    )
    select count(*), coalesce(names, '{}') || array_agg(coalesce(message_id, id::text))
         , coalesce(lines, '{}') || array_agg(event ->> 'line') filter (where event ? 'line')
    into history, names, lines
    from gone;
end
$$;

-- The conversation that is named after an identity, channel:id:… or channel:name:…, as channels other than Slack have it.
create or replace function agent.own_conversation(_id text) returns text
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
return regexp_replace(_id, '^([^:]*):(id|name):', '\1:');

-- Deletes a person's lines of agents' histories. Lines of earlier releases name nobody; they are found by their message, or
-- by a conversation that is named after the person. `names` are the ids of the messages, those given included.
create or replace function agent.forget_agent_messages
( _key text
, _workspace text
, _id text
, inout names text[]
, out removed int8
)
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    with gone as
    ( delete from agent.agent_message
      where subject = _key or (subject = '' and (message_id = any (names)
         or (_workspace = 'default' and conversation in (agent.own_conversation(_id), channel || ':' || _id))))
      returning message_id
    )
    select count(*), names || array_agg(message_id) into removed, names from gone;
end
$$;

-- Deletes what is known about a subject, and what is known about others from its messages alone. The latter leave our
-- index at once, and that of others by the relays. Returns how many.
create or replace function agent.forget_observations(_workspace text, _type text, _id text, _names text[]) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
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
        where workspace_id = _workspace and source_message_ids <> '{}' and source_message_ids <@ _names
        order by id
        for update
    loop
        perform agent.remove_observation(_workspace, _learned.id);
        perform agent.remove_documents('memory.observation'
            , agent.subject_key(_workspace, _learned.subject_type, _learned.subject_id), array[_learned.id]);
        _removed := _removed + 1;
    end loop;
    return _removed;
end
$$;

-- Counts rows of earlier releases that name no person, so that forgetting may have missed some; without the zeros.
create or replace function agent.count_unattributed() returns jsonb
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return jsonb_strip_nulls(jsonb_build_object
    ( 'unattributed_agent_messages', (select nullif(count(*), 0) from agent.agent_message where subject = '')
    , 'unattributed_chat_messages', (select nullif(count(*), 0) from agent.chat_message where subject = '')
    , 'unattributed_activity',
      ( select nullif(count(*), 0) from agent.activity
        where exists
        ( select from json_array_elements(case json_typeof(frames) when 'array' then frames else '[]' end) as frame
          where frame ->> 'messageId' is not null and coalesce(frame ->> 'subject', '') = '' ) ) ));
end
$$;

-- Deletes every trace of a subject: its observations, their events and, of a person, their messages with all that came of
-- them. Message ids stay known for the dedup window, so that a redelivery is not taken for new.
create or replace function agent.forget_subject(_workspace text, _type text, _id text) returns jsonb
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
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
    from agent.forget_agent_messages(_key, case when _is_person then _workspace end, _id, _gone.names);
    delete from agent.chat_message where subject = _key or (key <> '' and key = any (_gone.lines));
    get diagnostics _lines = row_count;
    -- The default agent of a conversation that is named after the person.
    delete from agent.setting
    where _is_person and _workspace = 'default' and starts_with(key, 'default/')
      and (key = 'default/' || agent.own_conversation(_id) or right(key, length(_id) + 1) = ':' || _id
        or starts_with(key, 'default/' || agent.own_conversation(_id) || '/'));
    get diagnostics _settings = row_count;
    return jsonb_build_object
    ( 'events', _gone.events, 'history', _gone.history, 'agent_messages', _agent_messages, 'chat_messages', _lines
    , 'activity', agent.forget_frames(_key, _names), 'settings', _settings
    , 'observations', agent.forget_observations(_workspace, _type, _id, _names) ) || agent.count_unattributed();
end
$$;
