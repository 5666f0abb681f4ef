-- Tables of the migration runner, created in the migrating transaction if absent. Times are
-- microseconds since 1970.
create table if not exists version (
    version text not null,
    at integer not null
);
create unique index if not exists version_has_one_row on version ((version is not null));

create table if not exists migration (
    file_name text not null primary key,
    applied_at_version text not null,
    applied_at integer not null,
    body text not null
);
