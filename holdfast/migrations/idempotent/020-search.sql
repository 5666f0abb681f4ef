-- Searching the knowledge index, and indexing again for another model.

-- Queues a change for at most _limit documents of other models, and removes their model, so that
-- each is queued only once. The relays then index the current observations. Returns the number.
create or replace function agent.tell_again(_agent text, _model text, _limit int4 default 1000)
returns int4
language plpgsql security invoker
as $$
declare
    _changes jsonb;
begin
    with other as materialized
    ( select context_id, document_id
      from agent.knowledge
      where agent_name = _agent and nth = 0 and not deleted
        and ((model > '' and model < _model) or model > _model)
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
            ( 'kind', 'memory', 'workspace_id', split_part(context_id, ':', 1)
            , 'observation_local_id', document_id, 'subject_key', context_id
            , 'operation', 'UPSERT', 'version', version )))
    into _changes
    from marked;
    return coalesce(cardinality(agent.put(_changes)), 0);
end
$$;

create or replace function agent.found_by_words
( _agent text, _context text, _asked text, _limit int4 )
returns table (document_id text, content text)
language plpgsql stable security invoker
as $$
declare
    _all tsquery := plainto_tsquery('pg_catalog.english', _asked);
    -- Match any of the words: a question and its answer rarely share all of them.
    _any tsquery := replace(_all::text, ' & ', ' | ')::tsquery;
begin
    return query
    select near.document_id, near.content
    from
    ( select distinct on (piece.document_id) piece.document_id, piece.content
           , ts_rank(piece.words, _any) as rank
      from agent.knowledge as piece
      where piece.agent_name = _agent and piece.context_id = _context and piece.words @@ _any
      order by piece.document_id, rank desc
    ) as near
    order by near.rank desc, near.document_id
    limit _limit;
end
$$;
