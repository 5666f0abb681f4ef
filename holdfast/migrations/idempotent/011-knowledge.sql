-- The knowledge index: full text always, vectors where pgvector can be had.
--
--   enable_vectors    adds vectors; called by every migration, and again by hand once pgvector is installed
--   known_documents   what is there of some documents, so that unchanged ones are not embedded again
--   put_documents     writes documents, never over a newer version
--   remove_documents  removes documents, never a newer version
--   forget_documents  removes a scope without leaving its name
--   tell_again        puts a change for each document that another model indexed
--   found_by_words, found_by_meaning

create or replace function agent.enable_vectors() returns bool
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _home text;
begin
    if not exists (select from pg_extension where extname = 'vector') then
        begin
            create extension vector schema public;
        exception when others then
            -- Not installed, or not ours to create: words alone then, as doctor says.
            return false;
        end;
    end if;
    select nspname into _home
    from pg_extension
    inner join pg_namespace on pg_namespace.oid = extnamespace
    where extname = 'vector';
    execute format('alter table agent.knowledge add column if not exists embedding %I.vector', _home);
    -- Dropped first, since the columns of a result cannot be replaced.
    drop function if exists agent.found_by_meaning(text, text, text, text, int4);
    execute format
    ( $function$
        create function agent.found_by_meaning
        ( _agent text, _context text, _model text, _asked text, _limit int4 )
        returns table (document_id text, content text, likeness float8)
        language plpgsql stable security invoker
        set search_path = pg_catalog, pg_temp
        as $body$
        begin
            return query
            select near.document_id, near.content, 1 - near.distance
            from
            ( select distinct on (piece.document_id) piece.document_id, piece.content
                   , piece.embedding operator(%1$I.<=>) _asked::%1$I.vector as distance
              from agent.knowledge as piece
              where piece.agent_name = _agent and piece.context_id = _context and piece.model = _model
                and not piece.deleted and piece.embedding is not null
              order by piece.document_id, distance
            ) as near
            order by near.distance, near.document_id
            limit _limit;
        end
        $body$
      $function$
    , _home );
    return true;
end
$$;

select agent.enable_vectors();

create or replace function agent.known_documents(_agent text, _context text, _ids text[])
returns table (document_id text, hash text, model text, version int8, deleted bool)
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select known.document_id, known.hash, known.model, known.version, known.deleted
    from agent.knowledge as known
    where known.agent_name = _agent and known.context_id = _context and known.document_id = any (_ids) and known.nth = 0;
end
$$;

-- _documents: array of {"id", "hash", "version", "pieces": [{"content", "embedding"}]}; without pieces the content is
-- as it was and only the version moves, unless it is no longer as it was. Returns the ids that were written.
create or replace function agent.put_documents(_agent text, _context text, _model text, _documents jsonb) returns text[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _newer text[];
    _changed text[];
    _forgotten int8 := agent.forgotten(_agent, _context);
begin
    if _forgotten is not null then
        select coalesce(jsonb_agg(body order by nth), '[]') into _documents
        from jsonb_array_elements(_documents) with ordinality as given (body, nth)
        where (body ->> 'version')::int8 > _forgotten;
    end if;
    -- First of all a row of each to lock, also of those that are new: two writers take turns, in the order of the ids.
    insert into agent.knowledge (agent_name, context_id, document_id, nth, content, hash, model, version, deleted)
    select _agent, _context, id, 0, '', '', '', -1, true
    from jsonb_to_recordset(_documents) as row (id text)
    order by id
    on conflict do nothing;
    perform 1
    from agent.knowledge
    where agent_name = _agent and context_id = _context and nth = 0
      and document_id in (select id from jsonb_to_recordset(_documents) as row (id text))
    order by document_id
    for update;
    select array_agg(given.id), array_agg(given.id) filter (where given.pieces is not null) into _newer, _changed
    from jsonb_to_recordset(_documents) as given (id text, hash text, version int8, pieces jsonb)
    inner join agent.knowledge as known
        on known.agent_name = _agent and known.context_id = _context and known.document_id = given.id and known.nth = 0
    where known.version <= given.version
      and (given.pieces is not null or (not known.deleted and known.hash = given.hash and known.model = _model));
    update agent.knowledge as known
    set version = given.version, updated_at = agent.now()
    from jsonb_to_recordset(_documents) as given (id text, version int8)
    where known.agent_name = _agent and known.context_id = _context and known.document_id = given.id
      and known.document_id = any (_newer) and known.document_id <> all (coalesce(_changed, '{}'));
    delete from agent.knowledge
    where agent_name = _agent and context_id = _context and document_id = any (_changed);
    perform agent.put_pieces(_agent, _context, _model, _documents, _changed);
    return coalesce(_newer, '{}');
end
$$;

create or replace function agent.put_pieces(_agent text, _context text, _model text, _documents jsonb, _ids text[])
returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if agent.has_vectors() then
        insert into agent.knowledge
        (agent_name, context_id, document_id, nth, content, hash, model, version, updated_at, embedding)
        select _agent, _context, document.id, piece.nth - 1, piece.body ->> 'content', document.hash, _model
             -- An array of numbers is assigned as a vector without naming the schema of that type.
             , document.version, agent.now(), (piece.body ->> 'embedding')::float4[]
        from jsonb_to_recordset(_documents) as document (id text, hash text, version int8, pieces jsonb)
        cross join jsonb_array_elements(document.pieces) with ordinality as piece (body, nth)
        where document.id = any (_ids);
    else
        insert into agent.knowledge (agent_name, context_id, document_id, nth, content, hash, model, version, updated_at)
        select _agent, _context, document.id, piece.nth - 1, piece.body ->> 'content', document.hash, _model
             , document.version, agent.now()
        from jsonb_to_recordset(_documents) as document (id text, hash text, version int8, pieces jsonb)
        cross join jsonb_array_elements(document.pieces) with ordinality as piece (body, nth)
        where document.id = any (_ids);
    end if;
end
$$;

create or replace function agent.has_vectors() returns bool
language sql stable security invoker
set search_path = pg_catalog, pg_temp
return to_regprocedure('agent.found_by_meaning(text, text, text, text, int4)') is not null;

-- What is removed leaves a stone with its version: whoever comes late with an older one finds it.
-- Without ids the whole scope goes, but for what is newer than _version; _except are kept.
create or replace function agent.remove_documents
( _agent text
, _context text
, _ids text[] default null
, _version int8 default null
, _except text[] default '{}'
) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _removed text[];
    _forgotten int8 := agent.forgotten(_agent, _context);
begin
    with first as materialized
    ( select document_id
      from agent.knowledge
      where agent_name = _agent and context_id = _context and nth = 0 and not deleted
        and (_ids is null or document_id = any (_ids)) and document_id <> all (_except)
        and (_version is null or version <= _version)
      order by document_id
      for update
    )
    select coalesce(array_agg(document_id), '{}') into _removed from first;
    delete from agent.knowledge
    where agent_name = _agent and context_id = _context and document_id = any (_removed) and nth > 0;
    update agent.knowledge
    set content = '', hash = '', model = '', deleted = true, updated_at = agent.now()
      -- Of a whole scope each keeps its own: what was saved meanwhile may be older than the newest of the others.
      , version = case when _ids is null then version else greatest(version, _version) end
    where agent_name = _agent and context_id = _context and document_id = any (_removed);
    if agent.has_vectors() then
        update agent.knowledge set embedding = null
        where agent_name = _agent and context_id = _context and document_id = any (_removed);
    end if;
    -- What was never written must not be, either, by a late writer.
    insert into agent.knowledge (agent_name, context_id, document_id, nth, content, hash, model, version, deleted)
    select _agent, _context, id, 0, '', '', '', _version, true
    from unnest(_ids) as id
    where _version is not null and _forgotten is null
    on conflict (agent_name, context_id, document_id, nth)
        do update set version = greatest(agent.knowledge.version, excluded.version)
        where agent.knowledge.deleted;
    return cardinality(_removed);
end
$$;

-- A scope goes whole and leaves no name: a mark by its hash holds off who read before this and writes after it.
create or replace function agent.forget_documents(_agent text, _context text) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _removed int4;
begin
    perform pg_advisory_xact_lock(hashtext('agent.knowledge'), hashtext(_context));
    insert into agent.knowledge (agent_name, context_id, document_id, nth, content, hash, model, version, deleted)
    values (_agent, md5(_context), '', 0, '', '', '', nextval('agent.observation_version'), true)
    on conflict (agent_name, context_id, document_id, nth)
        do update set version = excluded.version, updated_at = agent.now();
    select count(*) into _removed
    from agent.knowledge
    where agent_name = _agent and context_id = _context and nth = 0 and not deleted;
    delete from agent.knowledge where agent_name = _agent and context_id = _context;
    return _removed;
end
$$;

-- Up to which version all of a scope was forgotten; until the caller commits, nobody forgets it.
create or replace function agent.forgotten(_agent text, _context text) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_advisory_xact_lock_shared(hashtext('agent.knowledge'), hashtext(_context));
    return
    ( select version
      from agent.knowledge
      where agent_name = _agent and context_id = md5(_context) and document_id = '' and nth = 0 and deleted );
end
$$;

-- Each is marked as of no model, so that it is told of once. The relays then index what the observations say now.
create or replace function agent.tell_again(_agent text, _model text, _limit int4 default 1000) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _changes jsonb;
begin
    with other as materialized
    ( select context_id, document_id
      from agent.knowledge
      where agent_name = _agent and nth = 0 and not deleted and ((model > '' and model < _model) or model > _model)
      limit _limit
      for update skip locked
    )
    , marked as
    ( update agent.knowledge as known set model = ''
      from other
      where known.agent_name = _agent and known.context_id = other.context_id
        and known.document_id = other.document_id and known.nth = 0
      returning known.context_id, known.document_id, known.version
    )
    select jsonb_agg(jsonb_build_object
        ( 'queue', 'memory', 'lane', context_id
        , 'event', jsonb_build_object
            ( 'kind', 'memory', 'workspace_id', split_part(context_id, ':', 1), 'observation_local_id', document_id
            , 'subject_key', context_id, 'operation', 'UPSERT', 'version', version )))
    into _changes
    from marked;
    return coalesce(cardinality(agent.put(_changes)), 0);
end
$$;

create or replace function agent.found_by_words(_agent text, _context text, _asked text, _limit int4)
returns table (document_id text, content text)
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    -- Any of the words: a question and its answer rarely share them all.
    _query tsquery := replace(plainto_tsquery('pg_catalog.english', _asked)::text, ' & ', ' | ')::tsquery;
begin
    return query
    select near.document_id, near.content
    from
    ( select distinct on (piece.document_id) piece.document_id, piece.content, ts_rank(piece.words, _query) as rank
      from agent.knowledge as piece
      where piece.agent_name = _agent and piece.context_id = _context and piece.words @@ _query
      order by piece.document_id, rank desc
    ) as near
    order by near.rank desc, near.document_id
    limit _limit;
end
$$;
