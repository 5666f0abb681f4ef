-- Observations. Every change writes its event to the queue `memory` in the same transaction.
--
--   keep_observation     inserts or replaces one, without its event
--   save_observation     the same with its event
--   remove_observation   deletes one, for good or softly
--   merge_observations   merges two into one
--   purge_observations   removes softly deleted ones for good

-- The event of a change, for the index. Returns its id: the position that a reader may wait for.
create or replace function agent.put_memory_event
( _operation text
, _workspace text
, _id text
, _subject_key text
, _version int8
) returns int8
language plpgsql security invoker
as $$
begin
    return (agent.put(jsonb_build_array(jsonb_build_object
        ( 'queue', 'memory', 'lane', _subject_key
        , 'event', jsonb_build_object
            ( 'kind', 'memory', 'workspace_id', _workspace, 'observation_local_id', _id
            , 'subject_key', _subject_key, 'operation', _operation, 'version', _version )))))[1];
end
$$;

-- Inserts or replaces an observation, for callers that put its event themselves.
create or replace function agent.keep_observation(_observation jsonb) returns agent.observation
language plpgsql security invoker
as $$
declare
    _kept agent.observation;
begin
    insert into agent.observation as known
    ( workspace_id, id, subject_type, subject_id, observer, type, content, source_message_ids
    , confidence, version, created_at, updated_at )
    select workspace_id, id, upper(subject_type), subject_id, coalesce(observer, '')
         , coalesce(type, 'EXPLICIT'), content, coalesce(source_message_ids, '{}')
         , coalesce(confidence, 0.9), nextval('agent.observation_version'), agent.now(), agent.now()
    from jsonb_to_record(_observation) as row
        ( workspace_id text, id text, subject_type text, subject_id text, observer text, type text
        , content text, source_message_ids text[], confidence float8 )
    on conflict (workspace_id, id) do update
    -- Draw the version while the row is locked: of two concurrent saves, the later gets the higher.
    set subject_type = excluded.subject_type, subject_id = excluded.subject_id
      , observer = excluded.observer, type = excluded.type, content = excluded.content
      , source_message_ids = excluded.source_message_ids, confidence = excluded.confidence
      , version = nextval('agent.observation_version'), updated_at = excluded.updated_at
      , deleted_at = null
    returning * into _kept;
    return _kept;
end
$$;

-- _observation: workspace_id, id, subject_type, subject_id, content and, as wanted, observer, type,
-- source_message_ids and confidence. Returns the position of the change.
create or replace function agent.save_observation(_observation jsonb) returns int8
language plpgsql security invoker
as $$
declare
    _before text;
    _key text;
    _saved agent.observation;
    _workspace text := _observation ->> 'workspace_id';
    _id text := _observation ->> 'id';
begin
    if not exists (select from agent.observation where workspace_id = _workspace and id = _id) then
        -- Another transaction may be inserting it, which the select below would not see. So the
        -- second of two concurrent first saves waits here for the first one.
        perform pg_advisory_xact_lock(hashtext('agent.observation'), hashtext(_id));
    end if;
    select case when deleted_at is null
        then agent.subject_key(workspace_id, subject_type, subject_id) end
    into _before
    from agent.observation
    where workspace_id = _workspace and id = _id
    for update;
    _saved := agent.keep_observation(_observation);
    _key := agent.subject_key(_saved.workspace_id, _saved.subject_type, _saved.subject_id);
    if _before <> _key then
        perform agent.put_memory_event
            ('DELETE', _saved.workspace_id, _saved.id, _before, _saved.version);
    end if;
    return agent.put_memory_event('UPSERT', _saved.workspace_id, _saved.id, _key, _saved.version);
end
$$;

-- Returns the position of the change, null if there is no such observation.
create or replace function agent.remove_observation
( _workspace text, _id text, _soft bool default false ) returns int8
language plpgsql security invoker
as $$
declare
    _gone agent.observation;
begin
    if _soft then
        update agent.observation
        set deleted_at = agent.now(), updated_at = agent.now()
          , version = nextval('agent.observation_version')
        where workspace_id = _workspace and id = _id and deleted_at is null
        returning * into _gone;
    else
        delete from agent.observation where workspace_id = _workspace and id = _id
        returning * into _gone;
        _gone.version := nextval('agent.observation_version');
    end if;
    if _gone.id is null then
        return null;
    end if;
    return agent.put_memory_event('DELETE', _gone.workspace_id, _gone.id
        , agent.subject_key(_gone.workspace_id, _gone.subject_type, _gone.subject_id)
        , _gone.version);
end
$$;

create or replace function agent.merge_observations(_winner text, _loser text, _merged jsonb)
returns int8
language plpgsql security invoker
as $$
declare
    _workspace text := _merged ->> 'workspace_id';
    _key text := agent.subject_key
        (_workspace, _merged ->> 'subject_type', _merged ->> 'subject_id');
    _keys jsonb;
    _id text;
begin
    -- Locked in one order, so that two merges of the same pair do not wait for each other.
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
            raise exception 'there is no observation % in workspace %'
                , quote_literal(_id), quote_literal(_workspace);
        elsif _keys ->> _id <> _key then
            raise exception 'observation % is about %, not %'
                , quote_literal(_id), _keys ->> _id, _key;
        end if;
    end loop;
    perform agent.remove_observation(_workspace, _loser, true);
    return agent.save_observation(_merged || jsonb_build_object('id', _winner));
end
$$;

create or replace function agent.purge_observations(_before timestamptz) returns int4
language plpgsql security invoker
as $$
declare
    _purged int4;
begin
    delete from agent.observation where deleted_at < _before;
    get diagnostics _purged = row_count;
    -- Tombstones stop late writers, and no writer is a day late.
    delete from agent.knowledge
    where deleted and updated_at < greatest(_before, agent.now() - interval '1 day');
    return _purged;
end
$$;
