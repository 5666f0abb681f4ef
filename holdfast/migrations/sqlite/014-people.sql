-- Identities that somebody said are one person: subjects with the same value of `person`.
create table person_link (
  subject text not null primary key,
  person text not null,
  linked_at integer not null default (
    cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
  )
) strict;

create index person_link_person on person_link (person);
