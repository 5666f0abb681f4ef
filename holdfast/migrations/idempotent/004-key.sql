-- Message keys: the platform's own id of a message, unique per queue, finds duplicates.
--
--   keep_key       stores the key of one event
--   keep_keys      stores the keys of many events and returns which events are new
--   keep_new_keys  the same for events that are probably all new
--   forget_keys    drops keys that are older than the dedup window

-- Returns false if the message id is known already.
create or replace function agent.keep_key(_queue text, _message_id text, _id int8) returns bool
language plpgsql security invoker
as $$
begin
    if _message_id is null then
        return true;
    end if;
    insert into agent.message_key (queue, message_id, event_id, seen_at)
    values (_queue, _message_id, _id, agent.now())
    on conflict do nothing;
    return found;
end
$$;

-- Returns the ids, null for events whose message id is known already.
create or replace function agent.keep_keys
( _ids int8[]
, _queues text[]
, _message_ids text[]
, _parents int8[] default null
) returns int8[]
language plpgsql security invoker
as $$
declare
    _kept int8[];
begin
    -- Usually all are new; storing them without a look-up saves a third.
    if cardinality(_ids) >= 100 and agent.keep_new_keys(_ids, _queues, _message_ids, _parents) then
        return _ids;
    end if;
    with key as
    ( insert into agent.message_key (queue, message_id, event_id, parent_id, seen_at)
      select queue, message_id, id, parent_id, agent.now()
      from unnest(_queues, _message_ids, _ids, _parents) as given (queue, message_id, id, parent_id)
      where message_id is not null
      -- Sorted, so that two transactions never wait for each other.
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

-- Stores the keys if none of them is known; otherwise stores none and returns false.
create or replace function agent.keep_new_keys
( _ids int8[]
, _queues text[]
, _message_ids text[]
, _parents int8[]
) returns bool
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    insert into agent.message_key (queue, message_id, event_id, parent_id, seen_at)
    select queue, message_id, id, parent_id, _now
    from
    ( select unnest(_queues) as queue, unnest(_message_ids) as message_id, unnest(_ids) as id
           , unnest(_parents) as parent_id
    ) as given
    where message_id is not null
    order by queue collate "C", message_id collate "C", id;
    return true;
exception when unique_violation then
    return false;
end
$$;

create or replace function agent.forget_keys(_queue text, _before timestamptz) returns int4
language plpgsql security invoker
as $$
declare
    _forgotten int4;
begin
    delete from agent.message_key as key
    where key.queue = _queue and key.seen_at < _before
      and not exists (select from agent.event where id = key.event_id);
    get diagnostics _forgotten = row_count;
    return _forgotten;
end
$$;
