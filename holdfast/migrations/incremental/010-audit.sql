-- The audit log. Rows are appended; agent.guard_audit refuses every change but retention.
create table agent.audit
( id int8 not null generated always as identity primary key
, at timestamptz not null default agent.now()
, actor text not null
, action text not null
, subject text not null default ''
, details jsonb not null default '{}'
);

create index audit_action on agent.audit (action, id);
create index audit_actor on agent.audit (actor, id);

-- Pseudonyms of people in the log: without this value nobody can tell whom they name.
insert into agent.setting (key, value) values ('audit/salt', to_jsonb(gen_random_uuid()::text || gen_random_uuid()::text))
on conflict (key) do nothing;
