-- TimescaleDB: history as a hypertable.
--
--   can_have_timescale     whether the server preloads TimescaleDB
--   history_is_hypertable  whether history is a hypertable
--   history_to_hypertable  makes it one, with its rows; the table is locked meanwhile
--   move_history           moves finished events out of history, or back, so that an almost empty
--                          table becomes a hypertable without a pause

-- Without the preload, creating the extension would end the session instead of failing. Most roles
-- may not read shared_preload_libraries; a parameter that the library defines shows the same.
create or replace function agent.can_have_timescale() returns bool
language sql stable security invoker
return current_setting('timescaledb.disable_load', true) is not null
    and exists (select from pg_available_extensions where name = 'timescaledb');

create or replace function agent.history_is_hypertable() returns bool
language plpgsql stable security invoker
as $$
declare
    _is_hypertable bool := false;
begin
    if to_regclass('_timescaledb_catalog.hypertable') is not null then
        select exists
        ( select from _timescaledb_catalog.hypertable
          where schema_name = 'agent' and table_name = 'event_hist' )
        into _is_hypertable;
    end if;
    return _is_hypertable;
end
$$;

create or replace function agent.history_to_hypertable() returns bool
language plpgsql security invoker
as $$
declare
    _schema text;
begin
    if not exists (select from pg_extension where extname = 'timescaledb')
       and agent.can_have_timescale() then
        begin
            create extension timescaledb schema public;
        exception when insufficient_privilege then
            raise warning 'TimescaleDB is there, but this role may not create the extension: %'
                , 'history stays a plain table';
        end;
    end if;
    select extnamespace::regnamespace::text into _schema
    from pg_extension where extname = 'timescaledb';
    if _schema is null then
        return false;
    end if;
    execute format
    ( $q$select %s.create_hypertable('agent.event_hist', 'event_ts'
         , chunk_time_interval => interval '7 days', create_default_indexes => false
         , migrate_data => true, if_not_exists => true)$q$
    , _schema );
    return true;
end
$$;

-- Moves at most 5,000 rows and returns how many. Dead letters stay in history, where people look
-- for them.
create or replace function agent.move_history(_out bool) returns int4
language plpgsql security invoker
as $$
declare
    _moved int4;
begin
    if _out then
        with gone as
        ( delete from agent.event_hist
          where ctid = any (array
          ( select ctid from agent.event_hist
            where outcome in ('completed', 'discarded')
              and event_ts < agent.now() - interval '1 minute'
            limit 5000 ))
          returning *
        )
        insert into agent.event_hist_moved select * from gone;
    else
        with gone as
        ( delete from agent.event_hist_moved
          where ctid = any (array(select ctid from agent.event_hist_moved limit 5000))
          returning *
        )
        insert into agent.event_hist select * from gone;
    end if;
    get diagnostics _moved = row_count;
    return _moved;
end
$$;
