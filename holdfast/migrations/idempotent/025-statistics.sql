-- Numbers of events by time.
--
--   count_finished        counts the events that finished in a span, by bucket
--   roll_up               adds the next span of history to agent.event_count
--   rolled_up_to          the end of the last span that was added
--   count_live            counts the live events of a queue, by bucket
--   statistics            numbers of a queue: stored sums, events finished since, and live events
--   dead_rows             dead rows of the live table, if they are worth a vacuum

-- _width: the length of a bucket in seconds. With TimescaleDB its time_bucket is used; date_bin
-- gives the same buckets. A discarded event counts nowhere.
create or replace function agent.count_finished
( _since timestamptz, _until timestamptz, _width int4 ) returns table
( bucket timestamptz, queue text, target text, kind text, cell int4, events int8, tokens int8
, cost float8 )
language plpgsql stable security invoker
as $$
declare
    _schema text := (select extnamespace::regnamespace from pg_extension
        where extname = 'timescaledb');
    _bucket text := case when _schema is null
        then format('date_bin(make_interval(secs => %s), %%s, timestamptz ''2000-01-03Z'')', _width)
        else format('%s.time_bucket(make_interval(secs => %s), %%s)', _schema, _width) end;
begin
    return query execute format($q$
        with ended as materialized
        ( select id, queue, target, outcome, created_at, finished_at
          from agent.event_hist
          where finished_at >= $1 and finished_at < $2 and outcome <> 'discarded'
        )
        select %s, queue, target, outcome, cell, count(*), coalesce(sum(tokens), 0)::int8
             , coalesce(sum(cost), 0)::float8
        from
        ( select finished_at, queue, target, spent.tokens, spent.cost
               , case outcome when 'completed' then 'completed' else 'failed' end as outcome
               , case outcome when 'completed' then floor(8 / ln(2::float8) * ln(greatest
                   (extract(epoch from finished_at - created_at)::float8 * 1000, 1)))::int4
                 else 0 end as cell
          from ended
          left join lateral
          ( select sum(step.tokens) as tokens, sum(step.cost) as cost
            from agent.step where step.event_id = ended.id ) as spent on ended.queue = 'inbox'
        ) as timed
        group by 1, 2, 3, 4, 5
        union all
        select %s, queue, target, 'received', 0, count(*), 0::int8, 0::float8
        from ended
        group by 1, 2, 3
    $q$, format(_bucket, 'finished_at'), format(_bucket, 'created_at')) using _since, _until;
end
$$;

create or replace function agent.rolled_up_to() returns timestamptz
language plpgsql stable security invoker
as $$
begin
    return (select timestamptz 'epoch' + value::int8 * interval '1 microsecond'
        from agent.setting where key = 'statistics');
end
$$;

-- Adds at most an hour of history, up to _until, and drops buckets that no chart shows; a history
-- without events is added whole. Returns the end of the added history; null if another process is
-- doing this. Events whose transaction commits long after they ended are not counted.
create or replace function agent.roll_up(_until timestamptz) returns timestamptz
language plpgsql security invoker
as $$
declare
    _oldest timestamptz := _until - interval '8 days';
    _since timestamptz;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('holdfast statistics', 0)) then
        return null;
    end if;
    _since := greatest(agent.rolled_up_to(), _oldest);
    if exists (select from agent.event_hist) then
        _until := least(_until, _since + interval '1 hour');
    end if;
    if _until <= _since then
        return _since;
    end if;
    insert into agent.event_count as kept
    ( width, bucket, queue, target, kind, cell, events, tokens, cost )
    select wide.width
         , date_bin(make_interval(secs => wide.width), counted.bucket, timestamptz '2000-01-03Z')
         , counted.queue, counted.target, counted.kind, counted.cell
         , sum(counted.events), sum(counted.tokens), sum(counted.cost)
    from agent.count_finished(_since, _until, 60) as counted
    cross join (values (60), (900), (7200)) as wide (width)
    where counted.bucket >= _oldest
    group by 1, 2, 3, 4, 5, 6
    on conflict (width, queue, bucket, target, kind, cell) do update
    set events = kept.events + excluded.events, tokens = kept.tokens + excluded.tokens
      , cost = kept.cost + excluded.cost;
    delete from agent.event_count
    where bucket < _until - case width when 60 then interval '2 hours'
        when 900 then interval '2 days' else interval '8 days' end;
    perform agent.set_setting('statistics'
        , to_jsonb((extract(epoch from _until) * 1000000)::int8));
    return _until;
end
$$;

-- _since must be the start of a bucket. _targets: null for all. Returns one row per target, without
-- a bucket, if _by_target; otherwise one row per bucket, without a target. `cells` and
-- `cell_events` are a histogram of the times to answer of completed events.
create or replace function agent.statistics
( _width int4, _since timestamptz, _queue text, _targets text[] default null
, _by_target bool default false ) returns table
( bucket timestamptz, target text, received int8, completed int8, failed int8, tokens int8
, cost float8, cells int4[], cell_events int8[] )
language plpgsql stable security invoker
as $$
begin
    return query
    select summed.bucket, summed.target
         , sum(summed.events) filter (where summed.kind = 'received')::int8
         , sum(summed.events) filter (where summed.kind = 'completed')::int8
         , sum(summed.events) filter (where summed.kind = 'failed')::int8
         , sum(summed.tokens)::int8, sum(summed.cost)
         , array_agg(summed.cell) filter (where summed.kind = 'completed')
         , array_agg(summed.events) filter (where summed.kind = 'completed')
    from
    ( select case when not _by_target then counted.bucket end as bucket
           , case when _by_target then counted.target end as target, counted.kind, counted.cell
           , sum(counted.events)::int8 as events, sum(counted.tokens) as tokens
           , sum(counted.cost) as cost
      from
      ( select kept.bucket, kept.target, kept.kind, kept.cell, kept.events, kept.tokens, kept.cost
        from agent.event_count as kept
        where kept.width = _width and kept.queue = _queue and kept.bucket >= _since
        union all
        select late.bucket, late.target, late.kind, late.cell, late.events, late.tokens, late.cost
        from agent.count_finished(greatest(agent.rolled_up_to(), _since), 'infinity', _width)
            as late
        where late.queue = _queue and late.bucket >= _since
        union all
        select live.bucket, live.target, 'received', 0, live.events, 0, 0
        from agent.count_live(_width, _since, _queue) as live
      ) as counted
      where _targets is null or counted.target = any (_targets)
      group by 1, 2, 3, 4
    ) as summed
    group by 1, 2;
end
$$;

create or replace function agent.count_live(_width int4, _since timestamptz, _queue text)
returns table (bucket timestamptz, target text, events int8)
language plpgsql stable security invoker
as $$
begin
    return query
    select date_bin(make_interval(secs => _width), event.created_at, timestamptz '2000-01-03Z')
         , event.target, count(*)
    from agent.event as event
    where event.queue = _queue and event.created_at >= _since
    group by 1, 2;
end
$$;

-- The tables are younger than the grants of most workers. So a role gets the rights that it has on
-- agent.event; otherwise its turns and sweeps would fail.
do $$
declare
    _role text;
    _rights text;
begin
    for _role, _rights in
        select case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end
             , string_agg(distinct granted.privilege_type, ', ')
        from pg_catalog.pg_class as event
        cross join lateral pg_catalog.aclexplode(event.relacl) as granted
        where event.oid = 'agent.event'::regclass and granted.grantee <> event.relowner
          and granted.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        group by granted.grantee
    loop
        execute format('grant %s on agent.event_count, agent.attempt, agent.pause, agent.dead_note
            to %s', _rights, _role);
        execute format('grant usage on sequence agent.attempt_id_seq to %s', _role);
    end loop;
end
$$;

-- Returns the number of dead rows of the live table if they are many, else 0. A promoted standby
-- starts without statistics, so there it returns at least 1 until the first vacuum, unless the
-- table is tiny.
create or replace function agent.dead_rows() returns int8
language plpgsql stable security invoker
as $$
declare
    _table regclass := 'agent.event'::regclass;
    _dead int8;
    _vacuumed_at timestamptz;
    _live float8;
begin
    select n_dead_tup, greatest(last_vacuum, last_autovacuum), n_live_tup
    into _dead, _vacuumed_at, _live
    from pg_stat_all_tables where relid = _table;
    _live := greatest(_live, (select reltuples from pg_class where oid = _table));
    if _vacuumed_at is null and pg_relation_size(_table) > 1024 * 1024 then
        return greatest(_dead, 1);
    end if;
    return case when _dead > greatest(10000, _live / 5) then _dead else 0 end;
end
$$;
