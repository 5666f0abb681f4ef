-- Processes, and settings that they share.
--
--   start_process     registers a process; its session lock is its sign of life
--   beat              updates the state that a process reports
--   silent_processes  processes whose lock is free
--   up_since, restart_grace  when this server became the primary, and how long others may then
--                     take to come back
--   take_lookout      makes the caller's session the looker, which checks for dead processes for
--                     the whole fleet, or its deputy
--   look              one check for dead processes
--   wake_late         wakes queues whose events nobody took although they were ready
--   held_turns        the turns that a process holds according to the database
--   reap              releases the turns of processes that are gone
--   oldest_snapshot   age of the oldest snapshot, a metric
--   set_setting       writes a setting
--   use_choice, prune_choices  the agents that conversations chose

create or replace function agent.process_key(_id text) returns int8
language plpgsql immutable security invoker parallel safe
as $$
begin
    return hashtextextended('holdfast process ' || _id, 0);
end
$$;

-- Call it on the process's own session: the session lock ends with the session, whatever ends it.
-- Returns false if another session holds the lock. _serves: the agents, teams and limits of the
-- process.
create or replace function agent.start_process
( _id text, _host text, _started_at timestamptz, _serves jsonb default null ) returns bool
language plpgsql security invoker
as $$
begin
    insert into agent.process (id, host, started_at, seen_at, serves)
    values (_id, _host, _started_at, agent.now(), _serves)
    on conflict (id) do update set seen_at = excluded.seen_at, serves = excluded.serves;
    -- The first process that reconnects records a promotion, so that the grace period begins then.
    perform agent.up_since();
    return pg_try_advisory_lock(agent.process_key(_id));
end
$$;

-- A further argument would make a second function of the name.
drop function if exists agent.beat(text, text, int4);

-- _problems: texts by channel.
create or replace function agent.beat
( _id text, _last_wake_reason text, _turns int4, _problems jsonb default null ) returns void
language plpgsql security invoker
as $$
begin
    update agent.process
    set seen_at = agent.now(), last_wake_reason = coalesce(_last_wake_reason, last_wake_reason)
      , turns = _turns, problems = _problems
    where id = _id;
end
$$;

-- The later of two moments: the start of this server, and its promotion to primary, which begins a
-- new timeline. The first process that comes back after a promotion records the timeline.
create or replace function agent.up_since() returns timestamptz
language plpgsql security invoker
as $$
declare
    _timeline text := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    _noted jsonb := (select value from agent.setting where key = 'timeline');
begin
    if _noted is null or _noted ->> 'id' <> _timeline then
        -- Without a record there has been no promotion that we could have noticed.
        _noted := jsonb_build_object('id', _timeline, 'since'
            , case when _noted is null then pg_postmaster_start_time() else clock_timestamp() end);
        -- Many processes come back at once: the first record counts.
        insert into agent.setting (key, value) values ('timeline', _noted)
        on conflict (key) do update set value = excluded.value
        where setting.value ->> 'id' <> _timeline;
    end if;
    return greatest(pg_postmaster_start_time(), (_noted ->> 'since')::timestamptz);
end
$$;

-- After a start or a promotion, every process has to reconnect first, so for this time none counts
-- as silent. It is longer for a large fleet. The setting holdfast.restart_grace replaces it.
create or replace function agent.restart_grace() returns interval
language plpgsql security invoker
as $$
begin
    return coalesce(nullif(current_setting('holdfast.restart_grace', true), '')::interval
        , interval '3 seconds'
            + (select count(*) from agent.process) * interval '10 milliseconds');
end
$$;

create or replace function agent.free_locks() returns text[]
language plpgsql security invoker
as $$
begin
    return array
    ( select process.id
      from agent.process as process
      where not exists
      ( select
        from pg_locks as held
        where held.locktype = 'advisory' and held.granted and held.objsubid = 1
          and held.database = (select oid from pg_database where datname = current_database())
          and (held.classid::int8 << 32 | held.objid::int8) = agent.process_key(process.id)
      )
    );
end
$$;

-- For workers of 0.7.0, each of which checks every second.
create or replace function agent.silent_processes() returns text[]
language plpgsql security invoker
as $$
begin
    if clock_timestamp() - agent.up_since() < agent.restart_grace() then
        return '{}';
    end if;
    return agent.free_locks();
end
$$;

-- Call it on the session of the process. Returns its role (looker, deputy or none), whether it
-- holds the looker's lock, and the number of processes. The deputy calls this every second, so that
-- a dead looker is replaced at once; the others call it rarely. A suspended looker keeps its lock,
-- so another session also takes over if the last check is too old.
create or replace function agent.take_lookout
( _is_deputy bool
, out role text
, out has_lock bool
, out processes int4
)
language plpgsql security invoker
as $$
declare
    _looked_at timestamptz :=
        (select (value ->> 'at')::timestamptz from agent.setting where key = 'lookout');
begin
    has_lock := pg_try_advisory_lock(hashtextextended('holdfast looker', 0));
    role := case
        when has_lock or _looked_at < clock_timestamp() - interval '3 seconds' then 'looker'
        when _is_deputy then 'deputy'
        when pg_try_advisory_lock(hashtextextended('holdfast deputy', 0)) then 'deputy'
        else 'none' end;
    if has_lock and _is_deputy then
        perform pg_advisory_unlock(hashtextextended('holdfast deputy', 0));
    end if;
    processes := (select count(*) from agent.process);
end
$$;

-- Returns the processes whose lock is free, for how long this server has been the primary, and the
-- grace period after a start or a promotion. Returns nothing if the session lacks the looker's lock
-- and another one has just checked.
create or replace function agent.look
( _id text
, _has_lock bool
, out silent text[]
, out up_for interval
, out grace interval
)
language plpgsql security invoker
as $$
declare
    _now timestamptz := clock_timestamp();
begin
    if not _has_lock and exists
    ( select from agent.setting
      where key = 'lookout' and value ->> 'by' <> _id
        and (value ->> 'at')::timestamptz > _now - interval '2 seconds' ) then
        return;
    end if;
    perform set_config('synchronous_commit', 'off', true)
          , agent.set_setting('lookout', jsonb_build_object('by', _id, 'at', _now));
    silent := agent.free_locks();
    up_for := _now - agent.up_since();
    grace := agent.restart_grace();
end
$$;

-- An earlier release took the names of queues as its first argument.
drop function if exists agent.wake_late(text[], interval, interval);

-- Wakes queues in which an event of the last seconds is ready and not taken, since a process may
-- die between its commit and the wake-up. Older events are left: nobody serves them, or all slots
-- are taken. Reads the ready index once for each queue.
create or replace function agent.wake_late(_after interval, _within interval) returns text[]
language plpgsql security invoker
as $$
declare
    _late text[] := '{}';
    _queue text := '';
begin
    loop
        _queue :=
        ( select queue from agent.event
          where head and queue > _queue and target >= '' and vt > '-infinity'
          order by queue, target limit 1 );
        exit when _queue is null;
        if agent.has_late(_queue, _after, _within) then
            _late := _late || _queue;
        end if;
    end loop;
    perform set_config('synchronous_commit', 'off', true), agent.wake(_late) where _late <> '{}';
    return _late;
end
$$;

-- Whether a head of the queue became ready before _after ago and within _within. Reads the ready
-- index once for each target.
create or replace function agent.has_late(_queue text, _after interval, _within interval)
returns bool
language plpgsql stable security invoker
as $$
declare
    _now timestamptz := agent.now();
    _target text := '';
begin
    while _target is not null loop
        if exists
        ( select from agent.event
          where queue = _queue and target = _target and head
            and vt > _now - _within and vt <= _now - _after ) then
            return true;
        end if;
        _target :=
        ( select target from agent.event
          where queue = _queue and head and target > _target and vt > '-infinity'
          order by queue, target limit 1 );
    end loop;
    return false;
end
$$;

create or replace function agent.held_turns(_queue text, _holder text) returns setof agent.event
language plpgsql stable security invoker
as $$
begin
    return query
    select * from agent.event
    where queue = _queue and attempts > 0 and fence > 0 and holder = _holder and vt > agent.now()
    order by fence, id;
end
$$;

drop function if exists agent.reap(text[], int4);

-- Releases the turns of dead processes. Tries each lock once more and spares a process that came
-- back. _max_attempts: by queue, for events without their own; 3 for other queues. Returns the ids
-- of the reaped processes.
create or replace function agent.reap(_ids text[], _max_attempts jsonb default '{}')
returns setof text
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _id text;
    _used_up int8[];
begin
    foreach _id in array _ids loop
        continue when not pg_try_advisory_xact_lock(agent.process_key(_id));
        delete from agent.process where id = _id;
        continue when not found;
        -- Lock all events, in order of ids: the process may only have been suspended, and may be
        -- recording a step right now.
        perform from agent.event
        where attempts > 0 and fence > 0 and holder = _id order by id for update;
        insert into agent.attempt (event_id, attempt, at, worker, error)
        select id, attempts, _now, _id, format('process %s died', _id) from agent.event
        where attempts > 0 and fence > 0 and holder = _id and attempts <= 100;
        _used_up := array
        ( select id from agent.event
          where attempts > 0 and fence > 0 and holder = _id
            and attempts >= coalesce(max_attempts, (_max_attempts ->> queue)::int4, 3)
          order by id );
        perform agent.finish(_used_up, array_fill('dead'::text, array[cardinality(_used_up)])
            , array_fill(format('process %s died', _id), array[cardinality(_used_up)]));
        update agent.event set fence = 0, holder = null, vt = _now, updated_at = _now
        where attempts > 0 and fence > 0 and holder = _id;
        return next _id;
    end loop;
    perform agent.wake(array
    ( select distinct queue from agent.event where attempts > 0 and fence = 0 and vt = _now ));
end
$$;

-- Age of the oldest transaction whose snapshot keeps dead rows in our tables, null without one.
-- Transactions of other users are visible only with the rights of pg_read_all_stats.
create or replace function agent.oldest_snapshot() returns interval
language plpgsql stable security invoker
as $$
begin
    return
    ( select max(clock_timestamp() - held.since)
      from
      ( select activity.xact_start as since
        from pg_stat_activity as activity
        where (activity.backend_xmin is not null or activity.backend_xid is not null)
          and activity.pid <> pg_backend_pid()
          -- Neither a vacuum's own snapshot nor one in another database keeps our rows.
          and activity.backend_type <> 'autovacuum worker'
          and (activity.datname = current_database() or activity.datname is null)
        union all
        select prepared.prepared
        from pg_prepared_xacts as prepared
        where prepared.database = current_database()
      ) as held
    );
end
$$;

-- Null deletes the setting.
create or replace function agent.set_setting(_key text, _value jsonb) returns void
language plpgsql security invoker
as $$
begin
    if _value is null then
        delete from agent.setting where key = _key;
        return;
    end if;
    insert into agent.setting (key, value) values (_key, _value)
    on conflict (key) do update set value = excluded.value;
end
$$;

-- Marks a conversation's choice as used.
create or replace function agent.use_choice(_key text) returns void
language plpgsql security invoker
as $$
begin
    update agent.setting set value = value - 'unused_since'
    where key = _key and jsonb_typeof(value) = 'object';
end
$$;

-- Prunes the agents that conversations chose (settings default/<conversation>): those unused since
-- _before, and all but the _most recently used of each of _channels and of the others together.
-- Returns their number. A setting counts as unused from the first call that finds it without
-- unused_since (microseconds), which is then set; agent.use_choice removes it.
create or replace function agent.prune_choices(_before timestamptz, _most int4, _channels text[])
returns int4
language plpgsql security invoker
as $$
declare
    _now int8 := extract(epoch from agent.now()) * 1000000;
    _oldest int8 := extract(epoch from _before) * 1000000;
    _pruned int4;
begin
    update agent.setting set value = jsonb_set(value, '{unused_since}', to_jsonb(_now))
    where starts_with(key, 'default/') and jsonb_typeof(value) = 'object'
      and not value ? 'unused_since';
    delete from agent.setting
    using
    ( select key, unused_since
           , row_number() over (partition by channel order by unused_since desc, key) as nth
      from
      ( select choice.key, (choice.value ->> 'unused_since')::int8 as unused_since
             , case when named.channel = any (_channels) then named.channel else '' end as channel
        from agent.setting as choice
        cross join lateral
        (select split_part(substr(choice.key, 9), ':', 1) as channel) as named
        where starts_with(choice.key, 'default/') and jsonb_typeof(choice.value) = 'object'
      ) as choices
    ) as ranked
    where setting.key = ranked.key and (ranked.unused_since <= _oldest or ranked.nth > _most);
    get diagnostics _pruned = row_count;
    return _pruned;
end
$$;
