-- History is a hypertable where TimescaleDB can be had, a plain table otherwise.
do $$
begin
    if not exists (select from pg_catalog.pg_extension where extname = 'timescaledb') then
        -- Without the preload, loading the library would end this session instead of failing.
        if not exists (select from pg_catalog.pg_available_extensions where name = 'timescaledb')
           or pg_catalog.current_setting('shared_preload_libraries') not like '%timescaledb%' then
            return;
        end if;
        begin
            create extension timescaledb;
        exception when insufficient_privilege then
            raise notice 'extension timescaledb is there but this role may not create it: history stays a plain table';
            return;
        end;
    end if;
    perform public.create_hypertable
    ( 'agent.event_hist', 'event_ts'
    , chunk_time_interval => interval '7 days'
    , create_default_indexes => false
    );
end
$$;
