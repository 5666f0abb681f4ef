-- Identities that somebody said are one person: subjects with the same value of `person`.
create table agent.person_link
( subject text collate "C" not null primary key
, person uuid not null
, linked_at timestamptz not null default agent.now()
);

create index person_link_person on agent.person_link (person);
