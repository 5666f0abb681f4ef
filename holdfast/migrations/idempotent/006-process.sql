-- Processes and their sign of life: a session lock that ends with the session, whatever ends it.

create or replace function agent.process_key(_id text) returns int8
language plpgsql immutable security invoker parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    return hashtextextended('holdfast process ' || _id, 0);
end
$$;

drop function if exists agent.register_process(text, text, timestamptz);

-- Called on the process's own session: the lock is its sign of life. False: another session holds it.
-- _serves: its agents, teams and limits, which are known while it lives.
create or replace function agent.register_process
( _id text, _host text, _started_at timestamptz, _serves jsonb default null ) returns bool
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
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
set search_path = pg_catalog, pg_temp
as $$
begin
    update agent.process
    set seen_at = agent.now(), last_wake_reason = coalesce(_last_wake_reason, last_wake_reason), turns = _turns
    where id = _id;
end
$$;

-- Processes whose lock nobody holds. After a start of the server everybody has to come back first, so that for a while
-- nobody counts as gone; tests shorten that by the setting holdfast.restart_grace.
create or replace function agent.silent_processes() returns text[]
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if clock_timestamp() - pg_postmaster_start_time()
       < coalesce(nullif(current_setting('holdfast.restart_grace', true), '')::interval, '30 seconds') then
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

-- Takes their turns from processes that are gone. The lock is tried once more, so that one that came back is spared.
-- _max_attempts: by queue, for events without a number of their own; 3 where a queue is not named.
create or replace function agent.reap(_ids text[], _max_attempts jsonb default '{}') returns setof text
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
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
        _used_up := array
        ( select id from agent.event
          where attempts > 0 and fence > 0 and holder = _id
            and attempts >= coalesce(max_attempts, (_max_attempts ->> queue)::int4, 3)
          order by id for update );
        perform agent.finish(_used_up, array_fill('dead'::text, array[cardinality(_used_up)])
            , array_fill(format('process %s died', _id), array[cardinality(_used_up)]));
        update agent.event set fence = 0, holder = null, vt = _now, updated_at = _now
        where attempts > 0 and fence > 0 and holder = _id;
        return next _id;
    end loop;
    perform agent.wake(array(select distinct queue from agent.event where attempts > 0 and fence = 0 and vt = _now));
end
$$;

create or replace function agent.set_setting(_key text, _value jsonb) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
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

create or replace function agent.use_choice(_key text) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    update agent.setting set value = value - 'unused_since' where key = _key and jsonb_typeof(value) = 'object';
end
$$;

-- The agents that conversations chose (settings default/<conversation>): deletes those that are unused since _before, and
-- all but the _most latest used of each of _channels and of the others together. Returns how many.
-- A setting is noted as unused by the first call; whoever uses it takes the note (unused_since, microseconds) away.
create or replace function agent.prune_choices(_before timestamptz, _most int4, _channels text[]) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _pruned int4;
begin
    update agent.setting
    set value = jsonb_set(value, '{unused_since}', to_jsonb((extract(epoch from agent.now()) * 1000000)::int8))
    where starts_with(key, 'default/') and jsonb_typeof(value) = 'object' and not value ? 'unused_since';
    delete from agent.setting
    using
    ( select key, unused_since, row_number() over (partition by channel order by unused_since desc, key) as place
      from
      ( select choice.key, (choice.value ->> 'unused_since')::int8 as unused_since
             , case when named.channel = any (_channels) then named.channel else '' end as channel
        from agent.setting as choice
        cross join lateral (select split_part(substr(choice.key, 9), ':', 1) as channel) as named
        where starts_with(choice.key, 'default/') and jsonb_typeof(choice.value) = 'object'
      ) as of_channel
    ) as placed
    where setting.key = placed.key
      and (placed.unused_since <= (extract(epoch from _before) * 1000000)::int8 or placed.place > _most);
    get diagnostics _pruned = row_count;
    return _pruned;
end
$$;
