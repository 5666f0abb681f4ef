-- Tables of the migration runner, created in the migrating transaction if absent.
create table if not exists agent.version (
    version text not null,
    at timestamptz not null default now()
);
create unique index if not exists version_has_one_row on agent.version ((true));

create table if not exists agent.migration (
    file_name text not null primary key,
    applied_at_version text not null,
    applied_at timestamptz not null default clock_timestamp(),
    body text not null
);

-- TimescaleDB comes before the first script, which looks for it. If the library is not preloaded,
-- creating the extension would end the session. A parameter that the library defines shows whether
-- it is, even to roles that may not read settings.
do $$
begin
    if pg_catalog.to_regclass('agent.event_hist') is null
       and pg_catalog.current_setting('timescaledb.disable_load', true) is not null
       and exists (
           select from pg_catalog.pg_available_extensions
           where name = 'timescaledb' and installed_version is null
       ) then
        create extension timescaledb schema public;
    end if;
exception when insufficient_privilege or undefined_file then
    null; -- the first script warns
end
$$;
