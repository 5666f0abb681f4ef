-- Ending turns. Every settling statement carries the fence and returns what it settled.
--
--   settle        many turns, each with its outcome and what it emits, in one transaction
--   put_back      puts events back that are to be worked again
--   finish        moves events to history (the one place that does)
--   release       gives turns back without using an attempt
--   delete_event  the classical end of one event
--   ack_event     the end of an event that its client fetched, without a claim
--   cancel_event  ends what is being worked; its worker finds the lease lost

create or replace function agent.finish
( _ids int8[]
, _outcomes text[]
, _errors text[] default null
, _classes text[] default null
, _states jsonb[] default null
) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _now timestamptz := agent.now();
    _moved int4;
begin
    if _outcomes && array['dead', 'expired', 'cancelled'] then
        perform agent.note_dead(_ids, _outcomes, _errors, _classes);
    end if;
    with gone as
    ( delete from agent.event where id = any (_ids) returning * )
    insert into agent.event_hist
    ( id, event_ts, attempts, vt, claimed, event, queue, target, lane, head, fence, holder, message_id, max_attempts
    , parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at, outcome, finished_at, sent_by, traceback
    , routed_text, routed_team )
    select gone.id, event_ts, attempts, vt, claimed, case when outcome = 'discarded' then '{}' else event end, queue, target
         , lane, head, 0, holder, message_id, max_attempts, parent_id, root_id, hops
         , case when outcome <> 'discarded' then coalesce(ended.state, gone.state) end
         , case when outcome <> 'discarded' then
             coalesce(error, last_error, case outcome when 'dead' then 'no attempts left' when 'expired' then 'expired' end)
           end
         , case when outcome <> 'discarded' then case when error is null then gone.error_class else ended.error_class end end
         , created_at, _now, outcome, _now, sent_by
         , case when outcome in ('dead', 'expired', 'cancelled') then traceback end
         , case when outcome <> 'discarded' then routed_text end, case when outcome <> 'discarded' then routed_team end
    from gone
    join unnest(_ids, _outcomes, _errors, _classes, _states) as ended (id, outcome, error, error_class, state)
      on ended.id = gone.id;
    get diagnostics _moved = row_count;
    return _moved;
end
$$;

-- _turns: array of {"ids": […], "fence": n, "outcome": "done" | "retry" | "snooze" | "dead" | "release"} with, as wanted,
-- error, error_class, traceback, delay (interval), max_attempts, state, emits (as in put) and records (as in put).
-- Returns for each turn, numbered from 1, how it ended: completed, dead, back (to be worked again) or lost.
-- The caller commits right away.
create or replace function agent.settle(_turns jsonb) returns table (turn int8, ended text)
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _now timestamptz := agent.now();
    _verdicts agent.verdict[] := agent.judge(_turns);
    _emits jsonb := agent.emits(_turns, _verdicts);
    _by_hand text := coalesce(current_setting('holdfast.lanes', true), '');
begin
    -- Rows, then lanes, as everywhere; the lanes that end and those that are emitted to in one ascending pass.
    perform agent.lock_lanes(agent.lane_buckets(array_agg(touched.queue), array_agg(touched.lane)))
    from
    ( select verdict.queue, verdict.lane
      from unnest(_verdicts) as verdict
      where verdict.ended <> 'back'
      union all
      -- Messages of one root get their ids in the order of their commits: who stops them counts those before.
      select held.queue, held.lane
      from jsonb_to_recordset(_emits) as emit (queue text, lane text, root_id int8)
      cross join lateral
      ( values (coalesce(emit.queue, 'inbox'), emit.lane)
             , ('root', case when coalesce(emit.queue, 'inbox') = 'inbox' then emit.root_id::text end)
      ) as held (queue, lane)
    ) as touched;
    perform set_config('holdfast.lanes', 'held', true);
    perform agent.keep_tracebacks(_turns, _verdicts);
    perform agent.finish
    ( array_agg(verdict.id), array_agg(verdict.ended), array_agg(verdict.error), array_agg(verdict.error_class)
    , array_agg(verdict.state) )
    from unnest(_verdicts) as verdict
    where verdict.ended <> 'back'
    having count(*) > 0;
    if exists (select from unnest(_verdicts) as verdict where verdict.ended = 'back') then
        perform agent.put_back(_verdicts);
    end if;
    perform agent.promote(array_agg(verdict.queue), array_agg(verdict.lane))
    from unnest(_verdicts) as verdict
    where verdict.lane is not null and verdict.ended <> 'back'
    having count(*) > 0;
    perform agent.store_emits(_emits, agent.emitted_records(_turns, _verdicts));
    perform set_config('holdfast.lanes', _by_hand, true);
    return query
    select named.turn, coalesce(max(named.ended), 'lost')
    from
    ( select verdict.turn, verdict.ended from unnest(_verdicts) as verdict
      union all
      select nth, null from generate_series(1, jsonb_array_length(_turns)::int8) as nth
    ) as named (turn, ended)
    group by named.turn
    order by named.turn;
end
$$;

-- Stores where turns failed, before those that failed for good go to history. A failure without a traceback removes
-- that of the attempt before, which would explain another error.
create or replace function agent.keep_tracebacks(_turns jsonb, _verdicts agent.verdict[]) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    if not _turns @? '$[*].error ? (@ != null)' then
        return;
    end if;
    update agent.event as event
    set traceback = given.body ->> 'traceback'
    from jsonb_array_elements(_turns) with ordinality as given (body, turn)
    join unnest(_verdicts) as verdict on verdict.turn = given.turn
    where event.id = any (array(select failed.id from unnest(_verdicts) as failed where failed.error is not null))
      and event.id + 0 = verdict.id
      and event.traceback is distinct from given.body ->> 'traceback';
end
$$;

-- Events of turns that did not end come back, each at its time.
create or replace function agent.put_back(_verdicts agent.verdict[]) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _now timestamptz := agent.now();
    _ids int8[] := array(select verdict.id from unnest(_verdicts) as verdict where verdict.ended = 'back');
begin
    update agent.event as event
    set fence = 0, holder = null, vt = _now + least(verdict.delay, interval '1000 years')
      , attempts = greatest(event.attempts - verdict.unused, 0)
      , last_error = coalesce(verdict.error, event.last_error)
      , error_class = case when verdict.error is null then event.error_class else verdict.error_class end
      , updated_at = _now
    from unnest(_verdicts) as verdict
    -- The ids decide what is read; "+ 0" keeps the join from being another way to find them.
    where event.id = any (_ids)
      and event.id + 0 = verdict.id;
    perform agent.note_failed(array_agg(verdict.id))
    from unnest(_verdicts) as verdict
    where verdict.ended = 'back' and verdict.unused = 0
    having count(*) > 0;
end
$$;

-- Locks the events of all turns that are still held, by id and fence, and decides how each ends.
create or replace function agent.judge(_turns jsonb) returns agent.verdict[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _ids int8[] := array(select unnest(ids) from jsonb_to_recordset(_turns) as row (ids int8[]));
    _verdicts agent.verdict[];
begin
    with event as materialized
    ( select id, fence, queue, lane, attempts, max_attempts from agent.event
      where id = any (_ids) and fence > 0
      order by id
      for update
    )
    , held as materialized
    ( select given.turn, event.id, event.queue, event.lane, cardinality(given.ids) as size
           , given.outcome, given.error, given.error_class, coalesce(given.delay, '0') as delay, given.state
           , event.attempts >= coalesce(event.max_attempts, given.max_attempts, 3) as used_up
      from
      ( select *, row_number() over (partition by fence order by turn) = 1 as named_first
        from rows from
        ( jsonb_to_recordset(_turns) as
          ( ids int8[], fence int8, outcome text, error text, error_class text, delay interval, max_attempts int4, state jsonb )
        ) with ordinality as named (ids, fence, outcome, error, error_class, delay, max_attempts, state, turn)
        where fence > 0
      ) as given
      join event on event.fence = given.fence and event.id = any (given.ids)
      where given.named_first
    )
    select array_agg(row
        ( turn, id
        , case
            when outcome = 'done' then 'completed'
            when size = 1 and (outcome = 'dead' or outcome = 'retry' and used_up) then 'dead'
            when outcome in ('retry', 'dead', 'snooze', 'release') then 'back'
          end
        , error, error_class
        , case when size > 1 and outcome = 'dead' then interval '0' else delay end
        , (outcome in ('snooze', 'release'))::int4, state, queue, lane )::agent.verdict order by id)
    into _verdicts
    from held
    -- A turn of which one event is gone is lost whole.
    where size = 1 or turn in (select turn from held where size > 1 group by turn, size having count(*) = size);
    if exists (select from unnest(_verdicts) as verdict where verdict.ended is null) then
        raise invalid_parameter_value using message = 'settle knows the outcomes done, retry, snooze, dead and release';
    end if;
    return coalesce(_verdicts, '{}');
end
$$;

-- What the completed turns emit, ready for put. An emit derives its id from its parent's and its position, so that a
-- repeated turn emits the same ids.
create or replace function agent.emits(_turns jsonb, _verdicts agent.verdict[]) returns jsonb
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    if not _turns @? '$[*].emits[0]' then
        return '[]';
    end if;
    return coalesce(
    ( select jsonb_agg(emit.event || jsonb_build_object
             ( 'parent_id', parent.id, 'root_id', coalesce(parent.root_id, parent.id)
             , 'hops', parent.hops + (coalesce(emit.event ->> 'queue', 'inbox') = 'inbox')::int4
             , 'message_id', coalesce(emit.event ->> 'message_id', coalesce(parent.message_id, parent.id::text) || '/' || emit.nth)
             , 'sent_by', parent.sent_by )
             order by given.turn, emit.nth)
      from jsonb_array_elements(_turns) with ordinality as given (body, turn)
      join unnest(_verdicts) as verdict on verdict.turn = given.turn and verdict.id = (given.body -> 'ids' ->> 0)::int8
      -- "offset 0" keeps it apart from the others, so that it is read by id, one by one.
      cross join lateral
      ( select id, root_id, hops, message_id, sent_by from agent.event where id = verdict.id offset 0 ) as parent
      cross join jsonb_array_elements(given.body -> 'emits') with ordinality as emit (event, nth)
      where verdict.ended = 'completed' and jsonb_typeof(given.body -> 'emits') = 'array'
    ), '[]');
end
$$;

create or replace function agent.emitted_records(_turns jsonb, _verdicts agent.verdict[]) returns jsonb
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _completed int8[];
    _all bool;
begin
    if not _turns @? '$[*].records[0]' then
        return null;
    end if;
    -- Most often all are: verdicts and turns are not joined then, which would take a look at each for each.
    _completed := array(select distinct verdict.turn from unnest(_verdicts) as verdict where verdict.ended = 'completed');
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

-- An emit known under the same parent is skipped; known under another (a client chose that id), it gets a suffix
-- instead of being swallowed.
create or replace function agent.store_emits(_emits jsonb, _records jsonb) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _renamed jsonb;
    _ids int8[];
begin
    if _emits = '[]' and _records is null then
        return;
    end if;
    _renamed := agent.rename_emits(_emits, false);
    _ids := agent.put(_renamed, _records, true);
    if array_position(_ids, null) is not null then
        -- Perhaps a client used such an id since we looked.
        select coalesce(jsonb_agg(event order by nth), '[]') into _renamed
        from jsonb_array_elements(_renamed) with ordinality as emit (event, nth)
        where _ids[nth] is null;
        perform agent.put(agent.rename_emits(_renamed, true), null, true);
    end if;
end
$$;

create or replace function agent.rename_emits(_emits jsonb, _taken_only bool) returns jsonb
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
    return coalesce(
    ( select jsonb_agg(case when taken then event || jsonb_build_object('message_id', agent.free_name(emit.queue, emit.message_id, emit.parent_id)) else event end order by nth)
      from
      ( select event, nth, queue, message_id, parent_id
             , first_value(parent_id) over (partition by queue, message_id order by nth) as first_parent_id
        from jsonb_array_elements(_emits) with ordinality as given (event, nth)
        cross join lateral
        ( values (coalesce(event ->> 'queue', 'inbox'), event ->> 'message_id', (event ->> 'parent_id')::int8)
        ) as named (queue, message_id, parent_id)
      ) as emit
      left join lateral
      ( select queue, parent_id from agent.message_key
        where queue = emit.queue and message_id = emit.message_id
        offset 0
      ) as key on true
      -- Of two that settle together and chose the same id, the second gets another at once: later, and it would come
      -- after what its own turn emitted next.
      cross join lateral
      ( select case when key.queue is null then emit.first_parent_id else key.parent_id end is distinct from emit.parent_id
      ) as judged (taken)
      where taken or not _taken_only
    ), '[]');
end
$$;

-- The id with as many suffixes as it takes until no other parent, and no client, has it.
create or replace function agent.free_name(_queue text, _message_id text, _parent_id int8) returns text
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
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

-- _turns: array of {"ids": […], "fence": n}.
create or replace function agent.release(_turns jsonb) returns table (turn int8, ended text)
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    perform agent.wake(array
    ( select event.queue
      from jsonb_to_recordset(_turns) as given (ids int8[])
      join agent.event as event on event.id = given.ids[1]
    ));
    return query select * from agent.settle(
        (select jsonb_agg(body || '{"outcome": "release"}' order by nth) from jsonb_array_elements(_turns) with ordinality as given (body, nth)));
end
$$;

create or replace function agent.delete_event(_id int8, _fence int8 default null) returns bool
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from agent.event where id = _id and (_fence is null or fence = _fence and fence > 0) for update;
    return found and agent.finish(array[_id], array['completed']) = 1;
end
$$;

-- Returns acked (also when it was before), busy (somebody holds it) or unknown.
-- Dropped first, since a further argument would make a second function of the name.
drop function if exists agent.ack_event(int8);

create or replace function agent.ack_event(_id int8, _queue text default 'outbox') returns text
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := agent.now();
    _leased bool;
begin
    select fence > 0 and vt > _now into _leased from agent.event where id = _id and queue = _queue for update;
    if _leased then
        return 'busy';
    end if;
    if found and agent.finish(array[_id], array['completed']) = 1
        or exists (select from agent.event_hist where id = _id and queue = _queue) then
        return 'acked';
    end if;
    return 'unknown';
end
$$;

create or replace function agent.cancel_event(_id int8, _reason text default 'by hand') returns bool
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := agent.now();
    _fence int8;
begin
    select fence into _fence from agent.event where id = _id and fence > 0 and vt > _now for update;
    if not found then
        return false;
    end if;
    update agent.event set traceback = null where id = _id and traceback is not null;
    perform agent.finish(array[_id], array['cancelled'], array['cancelled: ' || _reason]);
    update agent.event set fence = 0, holder = null, vt = _now, updated_at = _now where attempts > 0 and fence = _fence;
    return true;
end
$$;
