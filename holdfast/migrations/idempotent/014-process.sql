-- Processes, and settings that they share.
--
--   start_process     a process appears; its session lock is its sign of life
--   beat              updates what is shown of a process
--   silent_processes  processes whose lock is free
--   reap              takes the turns of processes that are gone
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
-- process, which are known while it lives.
create or replace function agent.start_process
( _id text, _host text, _started_at timestamptz, _serves jsonb default null ) returns bool
language plpgsql security invoker
as $$
begin
    insert into agent.process (id, host, started_at, seen_at, serves)
    values (_id, _host, _started_at, agent.now(), _serves)
    on conflict (id) do update set seen_at = excluded.seen_at, serves = excluded.serves;
    return pg_try_advisory_lock(agent.process_key(_id));
end
$$;

create or replace function agent.beat(_id text, _last_wake_reason text, _turns int4) returns void
language plpgsql security invoker
as $$
begin
    update agent.process
    set seen_at = agent.now(), last_wake_reason = coalesce(_last_wake_reason, last_wake_reason)
      , turns = _turns
    where id = _id;
end
$$;

-- After a start of the server every process has to reconnect first, so none counts as silent for a
-- while; the setting holdfast.restart_grace shortens that in tests.
create or replace function agent.silent_processes() returns text[]
language plpgsql security invoker
as $$
declare
    _grace interval := coalesce(nullif(current_setting('holdfast.restart_grace', true), '')
        , '30 seconds');
begin
    if clock_timestamp() - pg_postmaster_start_time() < _grace then
        return '{}';
    end if;
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

drop function if exists agent.reap(text[], int4);

-- Tries each lock once more and spares a process that came back. _max_attempts: by queue, for
-- events without a number of their own; 3 where a queue is not named. Returns the processes reaped.
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
        -- All of them, in order: the process may only have been paused and record just now.
        perform from agent.event
        where attempts > 0 and fence > 0 and holder = _id order by id for update;
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
          -- Neither a vacuum's own snapshot nor one in another database keeps rows of ours.
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

-- Removes the note that a conversation's choice is unused.
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
-- Returns their number. The first call notes a setting as unused (unused_since, microseconds);
-- agent.use_choice removes the note.
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
