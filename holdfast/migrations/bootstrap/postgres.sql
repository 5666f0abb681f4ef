-- What the runner itself needs, made in the migrating transaction where it is absent.
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
