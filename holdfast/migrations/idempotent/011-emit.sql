-- Events that settled turns emit.
--
--   emits            the emitted events of completed turns, ready for put
--   emitted_records  the records of completed turns
--   put_emits        stores both
--   rename_emits     gives an emit another message id where its own is taken

-- An emit derives its id from its parent's and its position, so that a repeated turn emits the same
-- ids.
create or replace function agent.emits(_turns jsonb, _endings agent.ending[]) returns jsonb
language plpgsql security invoker
as $$
begin
    if not _turns @? '$[*].emits[0]' then
        return '[]';
    end if;
    return coalesce(
    ( select jsonb_agg(emit.event || jsonb_build_object
             ( 'parent_id', parent.id, 'root_id', coalesce(parent.root_id, parent.id)
             , 'hops', parent.hops + (coalesce(emit.event ->> 'queue', 'inbox') = 'inbox')::int4
             , 'message_id', coalesce(emit.event ->> 'message_id'
                 , coalesce(parent.message_id, parent.id::text) || '/' || emit.nth)
             , 'sent_by', parent.sent_by )
             order by given.turn, emit.nth)
      from jsonb_array_elements(_turns) with ordinality as given (body, turn)
      join unnest(_endings) as ending
        on ending.turn = given.turn and ending.id = (given.body -> 'ids' ->> 0)::int8
      -- "offset 0" keeps the planner from choosing a join: rows are read by id, one by one.
      cross join lateral
      ( select id, root_id, hops, message_id, sent_by from agent.event where id = ending.id offset 0
      ) as parent
      cross join jsonb_array_elements(given.body -> 'emits') with ordinality as emit (event, nth)
      where ending.ended = 'completed' and jsonb_typeof(given.body -> 'emits') = 'array'
    ), '[]');
end
$$;

create or replace function agent.emitted_records(_turns jsonb, _endings agent.ending[])
returns jsonb
language plpgsql security invoker
as $$
declare
    _completed int8[];
    _all bool;
begin
    if not _turns @? '$[*].records[0]' then
        return null;
    end if;
    _completed := array
    (select distinct ending.turn from unnest(_endings) as ending where ending.ended = 'completed');
    -- Usually all turns are completed. Then there is no need to search _completed for each turn.
    _all := cardinality(_completed) = jsonb_array_length(_turns);
    return
    ( select jsonb_agg(record.line order by given.turn, record.nth)
      from jsonb_array_elements(_turns) with ordinality as given (body, turn)
      cross join jsonb_array_elements(given.body -> 'records') with ordinality as record (line, nth)
      where jsonb_typeof(given.body -> 'records') = 'array'
        and (_all or given.turn = any (_completed))
    );
end
$$;

-- Replaced in 0.8.0 by put_emits, which also returns the queues to wake.
drop function if exists agent.store_emits(jsonb, jsonb);

-- An emit known under the same parent is skipped. If its id is known under another parent (a client
-- chose it), the emit gets a suffix and is stored. Returns the queues to wake.
create or replace function agent.put_emits(_emits jsonb, _records jsonb) returns text[]
language plpgsql security invoker
as $$
declare
    _renamed jsonb;
    _ids int8[];
    _ready text[];
    _more text[];
begin
    if _emits = '[]' and _records is null then
        return '{}';
    end if;
    _renamed := agent.rename_emits(_emits, false);
    select stored.ids, stored.ready into _ids, _ready
    from agent.store_all(_renamed, _records, true) as stored;
    if array_position(_ids, null) is not null then
        -- A client may have used one of the ids after rename_emits looked.
        select coalesce(jsonb_agg(event order by nth), '[]') into _renamed
        from jsonb_array_elements(_renamed) with ordinality as emit (event, nth)
        where _ids[nth] is null;
        select stored.ready into _more
        from agent.store_all(agent.rename_emits(_renamed, true), null, true) as stored;
        _ready := _ready || _more;
    end if;
    return _ready;
end
$$;

create or replace function agent.rename_emits(_emits jsonb, _taken_only bool) returns jsonb
language plpgsql security invoker
as $$
begin
    return coalesce(
    ( select jsonb_agg(case when taken then event || jsonb_build_object('message_id'
                 , agent.free_name(emit.queue, emit.message_id, emit.parent_id)) else event end
             order by nth)
      from
      ( select event, nth, queue, message_id, parent_id
             , first_value(parent_id) over
               (partition by queue, message_id order by nth) as first_parent_id
        from jsonb_array_elements(_emits) with ordinality as given (event, nth)
        cross join lateral
        ( values
          ( coalesce(event ->> 'queue', 'inbox'), event ->> 'message_id'
          , (event ->> 'parent_id')::int8 )
        ) as named (queue, message_id, parent_id)
      ) as emit
      left join lateral
      ( select queue, parent_id from agent.message_key
        where queue = emit.queue and message_id = emit.message_id
        offset 0
      ) as key on true
      -- If two emits that settle together chose the same id, rename the second one now. If it were
      -- renamed later, it would be stored after the next emit of its own turn.
      cross join lateral
      ( select case when key.queue is null then emit.first_parent_id else key.parent_id end
            is distinct from emit.parent_id
      ) as conflict (taken)
      where taken or not _taken_only
    ), '[]');
end
$$;

-- Appends suffixes to the id until no other parent, and no client, has it.
create or replace function agent.free_name(_queue text, _message_id text, _parent_id int8)
returns text
language plpgsql stable security invoker
as $$
begin
    loop
        _message_id := _message_id || '~' || _parent_id;
        perform from agent.message_key
        where queue = _queue and message_id = _message_id and parent_id is distinct from _parent_id;
        exit when not found;
    end loop;
    return _message_id;
end
$$;
