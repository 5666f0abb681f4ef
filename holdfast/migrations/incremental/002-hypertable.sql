-- History is a hypertable where TimescaleDB can be had, a plain table otherwise.
-- `select agent.history_to_hypertable()` turns a plain one into a hypertable later, with what it holds. True: it is one.
create function agent.history_to_hypertable() returns bool
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _home text;
begin
    if not exists (select from pg_extension where extname = 'timescaledb')
       and exists (select from pg_available_extensions where name = 'timescaledb') then
        begin
            -- Without the preload, creating the extension would end this session instead of failing.
            if current_setting('shared_preload_libraries') like '%timescaledb%' then
                create extension timescaledb schema public;
            end if;
        exception when insufficient_privilege then
            raise warning 'TimescaleDB is there, but this role may not create the extension: history stays a plain table';
        end;
    end if;
    select extnamespace::regnamespace::text into _home from pg_extension where extname = 'timescaledb';
    if _home is null then
        return false;
    end if;
    execute format
    ( $q$select %s.create_hypertable('agent.event_hist', 'event_ts', chunk_time_interval => interval '7 days'
         , create_default_indexes => false, migrate_data => true, if_not_exists => true)$q$
    , _home );
    return true;
end
$$;

select agent.history_to_hypertable();
