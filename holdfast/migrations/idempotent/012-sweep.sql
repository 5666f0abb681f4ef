-- Periodic work: dead letters, expiry and retention.
--
--   sweep                  all of it, for one queue
--   paused_targets         the targets of a queue that are paused
--   delete_expired_events  buries events that have no attempts left or waited too long
--   bury_unreadable        buries rows that break the checks of agent.event; there are none once
--                          the checks are validated
--   validate_checks        buries such rows and makes the server enforce the checks
--   headless_lanes         lanes of a queue without a head; there are none unless there is a bug
--   mend_queue             gives such lanes their head
--   prune_history          drops finished events older than their retention, never a dead letter

-- Makes dead letters of events without attempts left. Returns their number. Leaves events whose vt
-- lies ahead: they are leased, perhaps by a client that only sets vt.
create or replace function agent.bury(_queue text, _max_attempts int4) returns int4
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _ids int8[];
begin
    -- "attempts > 0" lets the planner use a partial index. A limit below one occurs only in calls
    -- by hand, which may read the whole table.
    if _max_attempts > 0 then
        _ids := array
        ( select id from agent.event
          where queue = _queue and attempts > 0 and vt <= _now
            and attempts >= coalesce(max_attempts, _max_attempts)
          order by id for update skip locked );
    else
        _ids := array
        ( select id from agent.event
          where queue = _queue and vt <= _now and attempts >= coalesce(max_attempts, _max_attempts)
          order by id for update skip locked );
    end if;
    return agent.finish(_ids, array_fill('dead'::text, array[cardinality(_ids)]));
end
$$;

-- The paused targets of a queue; null if the whole queue is paused. Events of paused targets do not
-- expire.
create or replace function agent.paused_targets(_queue text) returns text[]
language plpgsql stable security invoker
as $$
declare
    _default text := (select value ->> 'default' from agent.setting where key = 'routing');
begin
    if exists (select from agent.pause where kind = 'queue' and name = _queue) then
        return null;
    end if;
    return array
    ( select target
      from agent.pause
      cross join lateral unnest(case when kind = 'agent' and name = _default then array[name, '']
          else array[name] end) as target
      where kind = 'agent' and _queue = 'inbox' or kind = 'channel' and _queue = 'outbox' );
end
$$;

create or replace function agent.expire
( _queue text, _max_attempts int4, _age interval, _outcome text ) returns int4
language plpgsql security invoker
as $$
declare
    _before timestamptz := agent.now() - _age;
    _paused text[] := agent.paused_targets(_queue);
    _ids int8[] := array
    ( select id from agent.event
      where queue = _queue and head and vt < _before
        and (_paused is not null and target <> all (_paused))
        and attempts < coalesce(max_attempts, _max_attempts)
        and (_outcome <> 'discarded' or attempts = 0)
      order by id for update skip locked );
begin
    if _outcome = 'discarded' then
        perform agent.blank_journals(_ids);
    end if;
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
as $$
begin
    perform agent.keep_heads_now();
    dead := agent.bury(_queue, _max_attempts);
    expired := agent.expire(_queue, _max_attempts, _max_vt_age, 'expired');
end
$$;

-- Buries rows that are older than the checks and that no client can read. Values out of range
-- become the nearest readable ones. Returns the number of rows.
create or replace function agent.bury_unreadable() returns int4
language plpgsql security invoker
as $$
declare
    _error text := 'unreadable row: a moment, a number or the list of claims was out of range';
    _checks text :=
    ( select string_agg(format('(%s)', pg_get_expr(conbin, conrelid)), ' and ')
      from pg_constraint
      where conrelid = 'agent.event'::regclass and contype = 'c'
    );
    _ids int8[];
begin
    execute format('select array
        (select id from agent.event where not (%s) order by id for update skip locked)', _checks)
    into _ids;
    perform agent.report_dead(_ids, array_fill('dead'::text, array[cardinality(_ids)])
        , array_fill(_error, array[cardinality(_ids)])
        , array_fill('Unreadable'::text, array[cardinality(_ids)]));
    perform agent.keep_lines(_ids);
    with gone as
    ( delete from agent.event where id = any (_ids) returning * )
    insert into agent.event_hist
    ( id, event_ts, attempts, vt, claimed, event, queue, target, lane, head, fence, holder
    , message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class, created_at
    , updated_at, outcome, finished_at, sent_by, routed_text, routed_team )
    select id, agent.readable_moment(event_ts), greatest(attempts, 0), agent.readable_moment(vt)
         , agent.readable_moments(claimed), event, queue, target, lane, head, 0, holder, message_id
         , max_attempts, parent_id, root_id, greatest(least(hops, 1000000), 0), state, _error
         , 'Unreadable', agent.readable_moment(created_at), agent.now(), 'dead', agent.now()
         , sent_by, routed_text, routed_team
    from gone;
    return cardinality(_ids);
end
$$;

-- Migrations call this in a transaction of its own, after the one that added the checks, so that
-- workers can go on meanwhile. Returns the number of buried rows.
create or replace function agent.validate_checks() returns int4
language plpgsql security invoker
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

-- Finds the lanes without a head among _most lanes of a queue, beginning with _from. Reads one row
-- of the index for each lane. `following` is the lane to go on with, null at the end.
create or replace function agent.headless_lanes
( _queue text, _from text, _most int4, out lanes text[], out following text )
language plpgsql security invoker
as $$
begin
    with recursive known (lane, head) as
    ( ( select lane, head from agent.event
        where queue = _queue and lane >= _from
        order by lane, case when head then 0 else id end
        limit 1 )
      union all
      select further.lane, further.head
      from known
      cross join lateral
      ( select lane, head from agent.event
        where queue = _queue and lane > known.lane
        order by lane, case when head then 0 else id end
        limit 1
      ) as further
    )
    select coalesce(array_agg(lane) filter (where not head and nth <= _most), '{}')
         , max(lane) filter (where nth > _most)
    into lanes, following
    from
    ( select lane, head, row_number() over () as nth from known limit _most + 1 ) as examined;
end
$$;

-- Examines a part of the lanes if there are many: the setting mend/<queue> names the lane where the
-- next call goes on. Returns the number of repaired lanes.
create or replace function agent.mend_queue(_queue text, _most int4 default 10000) returns int4
language plpgsql security invoker
as $$
declare
    _key text := 'mend/' || _queue;
    _from text := (select value #>> '{}' from agent.setting where key = _key);
    _lanes text[];
    _queues text[];
    _following text;
    _promoted text[];
begin
    -- One process at a time is enough.
    if not pg_try_advisory_xact_lock(hashtextextended('holdfast mend ' || _queue, 0)) then
        return 0;
    end if;
    select lanes, following into _lanes, _following
    from agent.headless_lanes(_queue, coalesce(_from, ''), _most);
    if _following is distinct from _from then
        perform agent.set_setting(_key, to_jsonb(_following));
    end if;
    if _lanes = '{}' then
        return 0;
    end if;
    _queues := array_fill(_queue, array[cardinality(_lanes)]);
    perform agent.lock_lanes(agent.lane_buckets(_queues, _lanes));
    _promoted := agent.promote(_queues, _lanes);
    perform agent.wake(_promoted);
    return cardinality(_promoted);
end
$$;

-- Drops a chunk as a whole if all of it may go; otherwise deletes rows in batches.
create or replace function agent.prune_history(_queue text, _before timestamptz) returns int4
language plpgsql security invoker
as $$
declare
    _ahead timestamptz := agent.now() + interval '1 day';
    _pruned int4 := agent.prune_chunks(_queue, _before);
    _batch int8[];
begin
    loop
        with gone as
        ( delete from agent.event_hist
          where (id, event_ts) in
          ( select id, event_ts
            from agent.event_hist
            -- The index is on the platform's time, event_ts. Rows with an event_ts in the future
            -- would otherwise never be old enough.
            where (event_ts < _before or event_ts > _ahead)
              and queue = _queue and outcome in ('completed', 'discarded') and finished_at < _before
            order by event_ts
            limit 1000
          )
          returning id
        )
        select coalesce(array_agg(id), '{}') into _batch from gone;
        perform agent.erase_journals(_batch);
        _pruned := _pruned + cardinality(_batch);
        exit when cardinality(_batch) < 1000;
    end loop;
    return _pruned;
end
$$;

create or replace function agent.prune_chunks(_queue text, _before timestamptz) returns int4
language plpgsql security invoker
as $$
declare
    _schema text := (select extnamespace::regnamespace from pg_extension
        where extname = 'timescaledb');
    _chunk record;
    _rows int4;
    _is_prunable bool;
    _pruned int4 := 0;
begin
    if _schema is null then
        return 0;
    end if;
    for _chunk in
        select format('%I.%I', chunk_schema, chunk_name) as name, range_start, range_end
        from timescaledb_information.chunks
        where hypertable_schema = 'agent' and hypertable_name = 'event_hist'
          and range_end < _before
        order by range_start
    loop
        execute format('lock table %s in access exclusive mode', _chunk.name);
        execute format($q$select count(*), coalesce(bool_and(queue = $1
            and outcome in ('completed', 'discarded') and finished_at < $2), true)
            from %s$q$, _chunk.name)
        into _rows, _is_prunable using _queue, _before;
        if _is_prunable then
            perform agent.erase_journals_of(_chunk.name);
            execute format($q$select %s.drop_chunks
                ('agent.event_hist', older_than => $1, newer_than => $2)$q$, _schema)
            using _chunk.range_end, _chunk.range_start;
            _pruned := _pruned + _rows;
        end if;
    end loop;
    return _pruned;
end
$$;

-- Runs all steps for a queue and returns their counts. A null interval switches its step off.
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
    expired := case when _expire_after is null then 0
        else agent.expire(_queue, _max_attempts, _expire_after, 'expired') end;
    discarded := case when _discard_unserved is null then 0
        else agent.expire(_queue, _max_attempts, _discard_unserved, 'discarded') end;
    -- A buried event may have been a head. Give its lane the next head now; otherwise the lane
    -- would count as mended.
    perform agent.keep_heads_now();
    mended := agent.mend_queue(_queue);
    forgotten := agent.forget_keys(_queue, _now - _dedup_window);
    pruned := case when _keep_history is null then 0
        else agent.prune_history(_queue, _now - _keep_history) end;
end
$$;
