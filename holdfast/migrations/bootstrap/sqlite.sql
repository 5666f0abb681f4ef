-- What the runner itself needs, made in the migrating transaction where it is absent. Times are microseconds.
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
