-- Observations. Every change writes its event to the queue `memory` in the same transaction.
--
--   keep_observation     insert or replace one, without its event
--   save_observation     the same with its event
--   remove_observation   for good, or softly
--   merge_observations   two become one
--   forget_frames        what activity tells of some messages
--   forget_subject       every trace of one, its own messages too

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
begin
    -- Sorted, so that two merges of the same pair do not wait for each other.
    perform 1 from agent.observation
    where workspace_id = _workspace and id in (_winner, _loser)
    order by id
    for update;
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

-- A frame stays, and tells nothing: it is a place in the order of all, from which others go on. One received is two of
-- them, as it is told as routed, too. Whoever holds frames in memory finds in a new row that some were blanked. How many
-- rows it were.
create or replace function agent.forget_frames(_names text[]) returns int4
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
      cross join lateral (select coalesce(frame ->> 'messageId' = any (_names), false)) as known (blank)
      cross join lateral generate_series(1, case when blank and frame ->> 'type' = 'message_received' then 2 else 1 end) )
    where exists (select from json_array_elements(frames) as frame where frame ->> 'messageId' = any (_names));
    get diagnostics _changed = row_count;
    insert into agent.activity (frames) select '[{"type": "forgotten"}]' where _changed > 0;
    return _changed;
end
$$;

-- Every trace of a subject: its observations, their events and index, and, of one that writes messages itself, those
-- and all that came of them. Ids stay known for as long as they would have, so that a redelivery is not taken for new.
create or replace function agent.forget_subject(_workspace text, _type text, _id text) returns jsonb
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _key text := agent.subject_key(_workspace, _type, _id);
    _said int8[];
    _names text[];
    _lines text[];
    _counts jsonb := '{}';
    _removed int8;
begin
    select coalesce(array_agg(id), '{}') into _said
    from
    ( select id, event from agent.event where queue in ('inbox', 'outbox')
      union all
      select id, event from agent.event_hist where queue in ('inbox', 'outbox')
    ) as message
    where upper(_type) = 'USER'
      and case when event ? 'kind'
            then coalesce(event ->> 'workspace', 'default') = _workspace
             and coalesce(event ->> 'sender_id', event ->> 'sender') = _id
            else coalesce(event ->> 'team', 'default') = _workspace and event ->> 'user' = _id
          end;
    with gone as
    ( delete from agent.event
      -- A change about somebody else still has to reach the index.
      where id = any (_said) or (root_id = any (_said) and queue <> 'memory')
         or (queue = 'memory' and event ->> 'subject_key' = _key)
      returning message_id, event
    )
    select count(*), coalesce(array_agg(message_id), '{}'), array_agg(event ->> 'message') filter (where event ->> 'kind' = 'room')
    into _removed, _names, _lines
    from gone;
    _counts := _counts || jsonb_build_object('events', _removed);
    with gone as
    ( delete from agent.event_hist
      where id = any (_said) or root_id = any (_said) or (queue = 'memory' and event ->> 'subject_key' = _key)
      returning message_id, event
    )
    select count(*), _names || array_agg(message_id)
         , _lines || array_agg(event ->> 'message') filter (where event ->> 'kind' = 'room')
    into _removed, _names, _lines
    from gone;
    _counts := _counts || jsonb_build_object('history', _removed);
    delete from agent.agent_message where message_id = any (_names);
    get diagnostics _removed = row_count;
    _counts := _counts || jsonb_build_object('agent_messages', _removed);
    -- A line of a room names no message; what its members were told of it is the line after these words.
    delete from agent.chat_message
    where '[In room #' || team_id || ', from @' || from_agent || E']\n' || message = any (_lines);
    get diagnostics _removed = row_count;
    _counts := _counts || jsonb_build_object('chat_messages', _removed);
    _counts := _counts || jsonb_build_object('activity', agent.forget_frames(_names || _said::text[]));
    -- Which agent answers in a conversation with this one alone; those of Slack name the thread, and no person.
    delete from agent.setting
    where upper(_type) = 'USER' and _workspace = 'default' and starts_with(key, 'default/') and right(key, length(_id) + 1) = ':' || _id;
    get diagnostics _removed = row_count;
    _counts := _counts || jsonb_build_object('settings', _removed);
    delete from agent.observation
    where workspace_id = _workspace and subject_type = upper(_type) and subject_id = _id;
    get diagnostics _removed = row_count;
    -- What is known of others from these messages alone goes, too, out of their index by the relays.
    select _removed + count(agent.remove_observation(workspace_id, id)) into _removed
    from
    ( select workspace_id, id
      from agent.observation
      where workspace_id = _workspace and source_message_ids <> '{}' and source_message_ids <@ _names
      order by id
      for update
    ) as learned;
    return _counts || jsonb_build_object('observations', _removed);
end
$$;
