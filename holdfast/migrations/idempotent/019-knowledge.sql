-- The knowledge index: full text always, vectors where pgvector is available.
--
--   enable_vectors    adds vectors; run by every migration, and by hand once pgvector is installed
--   known_documents   hash, model and version of documents, so that unchanged ones are not embedded
--                     again
--   put_documents     writes documents, never over a newer version
--   remove_documents  removes documents, never a newer version
--   forget_documents  removes a scope without leaving its name
--   found_by_meaning  search by vectors; 020-search.sql has the one by words

create or replace function agent.enable_vectors() returns bool
language plpgsql security invoker
as $$
declare
    _schema text;
begin
    if not exists (select from pg_extension where extname = 'vector') then
        begin
            create extension vector schema public;
        exception when others then
            -- Not installed, or we may not create it: search by words alone. doctor reports it.
            return false;
        end;
    end if;
    select nspname into _schema
    from pg_extension
    inner join pg_namespace on pg_namespace.oid = extnamespace
    where extname = 'vector';
    execute format
        ('alter table agent.knowledge add column if not exists embedding %I.vector', _schema);
    perform agent.create_vector_search(_schema);
    return true;
end
$$;

-- Creates found_by_meaning, which names the schema of the vector type.
create or replace function agent.create_vector_search(_schema text) returns void
language plpgsql security invoker
as $$
begin
    execute format
    ( $function$
        create or replace function agent.found_by_meaning
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
              where piece.agent_name = _agent and piece.context_id = _context
                and piece.model = _model and not piece.deleted and piece.embedding is not null
              order by piece.document_id, distance
            ) as near
            order by near.distance, near.document_id
            limit _limit;
        end
        $body$
      $function$
    , _schema );
end
$$;

select agent.enable_vectors();

create or replace function agent.known_documents(_agent text, _context text, _ids text[])
returns table (document_id text, hash text, model text, version int8, deleted bool)
language plpgsql stable security invoker
as $$
begin
    return query
    select known.document_id, known.hash, known.model, known.version, known.deleted
    from agent.knowledge as known
    where known.agent_name = _agent and known.context_id = _context
      and known.document_id = any (_ids) and known.nth = 0;
end
$$;

-- _documents: array of {"id", "hash", "version", "pieces": [{"content", "embedding"}]}. A document
-- without pieces is unchanged: only its version moves, and it is not written if the index holds
-- other content by now. Returns the ids that were written.
create or replace function agent.put_documents
( _agent text, _context text, _model text, _documents jsonb ) returns text[]
language plpgsql security invoker
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
    perform agent.lock_documents(_agent, _context, _documents);
    select array_agg(given.id), array_agg(given.id) filter (where given.pieces is not null)
    into _newer, _changed
    from jsonb_to_recordset(_documents) as given (id text, hash text, version int8, pieces jsonb)
    inner join agent.knowledge as known on known.agent_name = _agent
      and known.context_id = _context and known.document_id = given.id and known.nth = 0
    where known.version <= given.version
      and (given.pieces is not null
        or (not known.deleted and known.hash = given.hash and known.model = _model));
    update agent.knowledge as known
    set version = given.version, updated_at = agent.now()
    from jsonb_to_recordset(_documents) as given (id text, version int8)
    where known.agent_name = _agent and known.context_id = _context
      and known.document_id = given.id and known.document_id = any (_newer)
      and known.document_id <> all (coalesce(_changed, '{}'));
    delete from agent.knowledge
    where agent_name = _agent and context_id = _context and document_id = any (_changed);
    perform agent.put_pieces(_agent, _context, _model, _documents, _changed);
    return coalesce(_newer, '{}');
end
$$;

-- Locks one row per document, in the order of the ids, so that two writers take turns. Documents
-- that are new get a row first.
create or replace function agent.lock_documents(_agent text, _context text, _documents jsonb)
returns void
language plpgsql security invoker
as $$
begin
    insert into agent.knowledge
    ( agent_name, context_id, document_id, nth, content, hash, model, version, deleted )
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
end
$$;

create or replace function agent.put_pieces
( _agent text, _context text, _model text, _documents jsonb, _ids text[] ) returns void
language plpgsql security invoker
as $$
begin
    if agent.has_vectors() then
        insert into agent.knowledge
        ( agent_name, context_id, document_id, nth, content, hash, model, version, updated_at
        , embedding )
        select _agent, _context, document.id, piece.nth - 1, piece.body ->> 'content'
             , document.hash, _model, document.version, agent.now()
             -- An array of numbers is assigned as a vector without naming the schema of that type.
             , (piece.body ->> 'embedding')::float4[]
        from jsonb_to_recordset(_documents)
            as document (id text, hash text, version int8, pieces jsonb)
        cross join jsonb_array_elements(document.pieces) with ordinality as piece (body, nth)
        where document.id = any (_ids);
    else
        insert into agent.knowledge
        ( agent_name, context_id, document_id, nth, content, hash, model, version, updated_at )
        select _agent, _context, document.id, piece.nth - 1, piece.body ->> 'content'
             , document.hash, _model, document.version, agent.now()
        from jsonb_to_recordset(_documents)
            as document (id text, hash text, version int8, pieces jsonb)
        cross join jsonb_array_elements(document.pieces) with ordinality as piece (body, nth)
        where document.id = any (_ids);
    end if;
end
$$;

create or replace function agent.has_vectors() returns bool
language sql stable security invoker
return to_regprocedure('agent.found_by_meaning(text, text, text, text, int4)') is not null;

-- Leaves a tombstone with the version of each removed document, which stops late writers that hold
-- an older one. Without ids removes the whole scope, except for _except and for documents newer
-- than _version. Returns the number of removed documents.
create or replace function agent.remove_documents
( _agent text, _context text, _ids text[] default null, _version int8 default null
, _except text[] default '{}' ) returns int4
language plpgsql security invoker
as $$
declare
    _removed text[];
begin
    if _version is not null and agent.forgotten(_agent, _context) is null then
        -- Do this first: it waits for a late writer of the same documents, whose rows the select
        -- below then sees.
        perform agent.bury_documents(_agent, _context, _ids, _version);
    end if;
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
    where agent_name = _agent and context_id = _context and document_id = any (_removed)
      and nth > 0;
    update agent.knowledge
    set content = '', hash = '', model = '', deleted = true, updated_at = agent.now()
      -- If the whole scope is removed, each document keeps its own version. A tombstone with the
      -- newest version would also refuse a document that was saved meanwhile with a lower one.
      , version = case when _ids is null then version else greatest(version, _version) end
    where agent_name = _agent and context_id = _context and document_id = any (_removed);
    if agent.has_vectors() then
        update agent.knowledge set embedding = null
        where agent_name = _agent and context_id = _context and document_id = any (_removed);
    end if;
    return cardinality(_removed);
end
$$;

-- Writes tombstones for documents that were never indexed, so that no late writer adds them.
create or replace function agent.bury_documents
( _agent text, _context text, _ids text[], _version int8 ) returns void
language plpgsql security invoker
as $$
begin
    insert into agent.knowledge
    ( agent_name, context_id, document_id, nth, content, hash, model, version, deleted )
    select _agent, _context, id, 0, '', '', '', _version, true
    from unnest(_ids) as id
    on conflict (agent_name, context_id, document_id, nth)
        do update set version = greatest(agent.knowledge.version, excluded.version)
        where agent.knowledge.deleted;
end
$$;

-- Deletes the scope and leaves a hashed tombstone, so that late writers cannot restore it. Returns
-- the number of documents.
create or replace function agent.forget_documents(_agent text, _context text) returns int4
language plpgsql security invoker
as $$
declare
    _removed int4;
begin
    perform pg_advisory_xact_lock(hashtext('agent.knowledge'), hashtext(_context));
    insert into agent.knowledge
    ( agent_name, context_id, document_id, nth, content, hash, model, version, deleted )
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

-- The version up to which a scope was forgotten, null if it never was. Takes a lock, so that no
-- other transaction forgets the scope before the caller commits.
create or replace function agent.forgotten(_agent text, _context text) returns int8
language plpgsql security invoker
as $$
begin
    perform pg_advisory_xact_lock_shared(hashtext('agent.knowledge'), hashtext(_context));
    return
    ( select version
      from agent.knowledge
      where agent_name = _agent and context_id = md5(_context) and document_id = '' and nth = 0
        and deleted );
end
$$;
