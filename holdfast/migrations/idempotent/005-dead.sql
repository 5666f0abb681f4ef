-- What is over: dead letters and what a person does with them, expiry, retention.
--
--   delete_expired_events  buries what has no attempts left or waited too long
--   bury_unreadable        buries rows that break the checks of agent.event; none can, once these are validated
--   validate_checks        does so, and has the server keep the checks for good
--   sweep                  that, and everything else that time brings, for one queue
--   mend_lanes             gives a head to lanes without one; finds none unless there is a fault
--   prune_history          drops what is older than its retention, never a dead letter
--   retry_event            a dead letter is live again, with its id
--   discard_event          a dead letter loses payload and error
--   replay_event           a finished event once more, as a new one

-- A vt that lies ahead is a lease, whoever wrote it.
create or replace function agent.bury(_queue text, _max_attempts int4) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := agent.now();
    _ids int8[];
begin
    -- "attempts > 0" is the index; a limit of less than one attempt is asked for by hand only, and may read the table.
    if _max_attempts > 0 then
        _ids := array
        ( select id from agent.event
          where queue = _queue and attempts > 0 and attempts >= coalesce(max_attempts, _max_attempts) and vt <= _now
          order by id for update skip locked );
    else
        _ids := array
        ( select id from agent.event
          where queue = _queue and attempts >= coalesce(max_attempts, _max_attempts) and vt <= _now
          order by id for update skip locked );
    end if;
    return agent.finish(_ids, array_fill('dead'::text, array[cardinality(_ids)]));
end
$$;

create or replace function agent.expire(_queue text, _max_attempts int4, _age interval, _outcome text) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _before timestamptz := agent.now() - _age;
    _ids int8[] := array
    ( select id from agent.event
      where queue = _queue and head and vt < _before and attempts < coalesce(max_attempts, _max_attempts)
        and (_outcome <> 'discarded' or attempts = 0)
      order by id for update skip locked );
begin
    return agent.finish(_ids, array_fill(_outcome, array[cardinality(_ids)]));
end
$$;

create or replace function agent.delete_expired_events
( _max_attempts int4 default 3
, _max_vt_age interval default '1h'
, _queue text default 'inbox'
, out dead int4
, out expired int4
)
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    perform agent.keep_heads_now();
    dead := agent.bury(_queue, _max_attempts);
    expired := agent.expire(_queue, _max_attempts, _max_vt_age, 'expired');
end
$$;

-- Rows from before the checks, which no client could read. They become dead letters with what of them can be read.
create or replace function agent.bury_unreadable() returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := agent.now();
    _error text := 'unreadable row: a moment, a number or the list of claims was out of range';
    _checks text :=
    ( select string_agg(format('(%s)', pg_get_expr(conbin, conrelid)), ' and ')
      from pg_constraint
      where conrelid = 'agent.event'::regclass and contype = 'c'
    );
    _ids int8[];
    _buried int4;
begin
    execute format('select array(select id from agent.event where not (%s) order by id for update skip locked)', _checks)
    into _ids;
    perform agent.note_dead(_ids, array_fill('dead'::text, array[cardinality(_ids)])
        , array_fill(_error, array[cardinality(_ids)]), array_fill('Unreadable'::text, array[cardinality(_ids)]));
    with gone as
    ( delete from agent.event where id = any (_ids) returning * )
    insert into agent.event_hist
    ( id, event_ts, attempts, vt, claimed, event, queue, target, lane, head, fence, holder, message_id, max_attempts
    , parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at, outcome, finished_at
    , sent_by, routed_text, routed_team )
    select id, agent.readable_moment(event_ts), greatest(attempts, 0), agent.readable_moment(vt)
         , agent.readable_moments(claimed), event, queue, target, lane, head, 0, holder, message_id, max_attempts
         , parent_id, root_id, greatest(least(hops, 1000000), 0), state, _error, 'Unreadable'
         , agent.readable_moment(created_at), _now, 'dead', _now, sent_by, routed_text, routed_team
    from gone;
    get diagnostics _buried = row_count;
    return _buried;
end
$$;

-- A migration calls it in a transaction of its own, after the one that added checks: workers go on meanwhile.
create or replace function agent.validate_checks() returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _check text;
    _buried int4 := 0;
begin
    for _check in
        select conname from pg_constraint
        where conrelid = 'agent.event'::regclass and contype = 'c' and not convalidated
    loop
        _buried := _buried + agent.bury_unreadable();
        execute format('alter table agent.event validate constraint %I', _check);
    end loop;
    return _buried;
end
$$;

create or replace function agent.mend_lanes() returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _queues text[];
    _lanes text[];
    _promoted text[];
begin
    select array_agg(queue), array_agg(lane) into _queues, _lanes
    from
    ( select queue, lane from agent.event where lane is not null
      except
      select queue, lane from agent.event where lane is not null and head
    ) as headless;
    if _queues is null then
        return 0;
    end if;
    perform agent.lock_lanes(agent.lane_buckets(_queues, _lanes));
    _promoted := agent.promote(_queues, _lanes);
    perform agent.wake(_promoted);
    return cardinality(_promoted);
end
$$;

create or replace function agent.forget_keys(_queue text, _before timestamptz) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _forgotten int4;
begin
    delete from agent.message_key as key
    where key.queue = _queue and key.seen_at < _before and not exists (select from agent.event where id = key.event_id);
    get diagnostics _forgotten = row_count;
    return _forgotten;
end
$$;

-- A chunk goes as a whole when all of it may go; otherwise rows go in batches.
create or replace function agent.prune_history(_queue text, _before timestamptz) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _ahead timestamptz := agent.now() + interval '1 day';
    _pruned int4 := agent.prune_chunks(_queue, _before);
    _batch int4;
begin
    loop
        delete from agent.event_hist
        where (id, event_ts) in
        ( select id, event_ts
          from agent.event_hist
          -- The time of the platform is the index; one that lies ahead would never come to be old.
          where (event_ts < _before or event_ts > _ahead)
            and queue = _queue and outcome in ('completed', 'discarded') and finished_at < _before
          order by event_ts
          limit 1000
        );
        get diagnostics _batch = row_count;
        _pruned := _pruned + _batch;
        exit when _batch < 1000;
    end loop;
    return _pruned;
end
$$;

create or replace function agent.prune_chunks(_queue text, _before timestamptz) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _home text := (select extnamespace::regnamespace::text from pg_extension where extname = 'timescaledb');
    _chunk record;
    _rows int4;
    _whole bool;
    _pruned int4 := 0;
begin
    if _home is null then
        return 0;
    end if;
    for _chunk in
        select format('%I.%I', chunk_schema, chunk_name) as name, range_start, range_end
        from timescaledb_information.chunks
        where hypertable_schema = 'agent' and hypertable_name = 'event_hist' and range_end < _before
        order by range_start
    loop
        execute format('lock table %s in access exclusive mode', _chunk.name);
        execute format($q$select count(*), coalesce(bool_and(queue = $1 and outcome in ('completed', 'discarded') and finished_at < $2), true) from %s$q$, _chunk.name)
        into _rows, _whole using _queue, _before;
        if _whole then
            execute format($q$select %s.drop_chunks('agent.event_hist', older_than => $1, newer_than => $2)$q$, _home)
            using _chunk.range_end, _chunk.range_start;
            _pruned := _pruned + _rows;
        end if;
    end loop;
    return _pruned;
end
$$;

create or replace function agent.sweep
( _queue text
, _max_attempts int4 default 3
, _expire_after interval default null
, _discard_unserved interval default null
, _dedup_window interval default '7 days'
, _keep_history interval default null
, out dead int4
, out expired int4
, out discarded int4
, out mended int4
, out forgotten int4
, out pruned int4
)
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := agent.now();
begin
    dead := agent.bury(_queue, _max_attempts);
    if exists
    ( select from pg_constraint
      where conrelid = 'agent.event'::regclass and contype = 'c' and not convalidated ) then
        dead := dead + agent.bury_unreadable();
    end if;
    expired := case when _expire_after is null then 0 else agent.expire(_queue, _max_attempts, _expire_after, 'expired') end;
    discarded := case when _discard_unserved is null then 0
        else agent.expire(_queue, _max_attempts, _discard_unserved, 'discarded') end;
    -- What was just buried may have been a head: its lane is given the next one now, or it would count as a fault.
    perform agent.keep_heads_now();
    mended := agent.mend_lanes();
    forgotten := agent.forget_keys(_queue, _now - _dedup_window);
    pruned := case when _keep_history is null then 0 else agent.prune_history(_queue, _now - _keep_history) end;
end
$$;

create or replace function agent.retry_events(_ids int8[]) returns setof int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _now timestamptz := agent.now();
begin
    return query
    with gone as
    ( delete from agent.event_hist
      where id = any (_ids) and outcome in ('dead', 'expired', 'cancelled')
      returning *
    )
    , key as
    ( insert into agent.message_key (queue, message_id, event_id, parent_id, seen_at)
      select queue, message_id, id, parent_id, _now from gone where message_id is not null
      order by queue, message_id
      on conflict do nothing
    )
    insert into agent.event
    ( id, event_ts, attempts, vt, claimed, event, queue, target, lane, message_id, max_attempts, parent_id, root_id, hops
    , state, last_error, error_class, created_at, updated_at, sent_by, routed_text, routed_team )
    select id, agent.readable_moment(event_ts), 0, _now, agent.readable_moments(claimed), event, queue, target, lane
         , message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class
         , agent.readable_moment(created_at), _now, sent_by, routed_text, routed_team
    from gone
    order by gone.id
    returning agent.event.id;
    perform agent.note_received(_ids);
end
$$;

create or replace function agent.retry_event(_id int8) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select min(id) from agent.retry_events(array[_id]) as id);
end
$$;

create or replace function agent.discard_events(_ids int8[]) returns setof int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    update agent.event_hist
    set event = '{}', routed_text = null, routed_team = null, last_error = null, error_class = null, traceback = null
      , state = null, outcome = 'discarded', updated_at = agent.now()
    where id = any (_ids) and outcome in ('dead', 'expired', 'cancelled')
    returning agent.event_hist.id;
end
$$;

create or replace function agent.discard_event(_id int8) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return (select min(id) from agent.discard_events(array[_id]) as id);
end
$$;

create or replace function agent.replay_event(_id int8) returns int8
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _new int8 := nextval('agent.event_id_seq');
begin
    insert into agent.event (id, event_ts, event, queue, target, lane, message_id, max_attempts, root_id, sent_by
    , routed_text, routed_team)
    select _new, agent.readable_moment(event_ts), event, queue, target, lane, message_id || '~' || _new, max_attempts, _new
         , sent_by, routed_text, routed_team
    from agent.event_hist
    where id = _id and outcome <> 'discarded'
    limit 1;
    if not found then
        return null;
    end if;
    insert into agent.message_key (queue, message_id, event_id, seen_at)
    select queue, message_id, id, created_at from agent.event where id = _new and message_id is not null;
    perform agent.note_received(array[_new]);
    return _new;
end
$$;
