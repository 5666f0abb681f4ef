-- The audit log.
--
--   add_audit      appends an entry, if there is an actor
--   pseudonym      an opaque name of a person
--   audit_log      the entries, newest first
--   guard_audit    (trigger) refuses changes
--   prune_audit    removes entries older than a moment

create or replace function agent.add_audit
( _actor text
, _action text
, _subject text default ''
, _details jsonb default '{}'
) returns int8
language plpgsql security invoker
as $$
declare
    _id int8;
begin
    if _actor is null then
        return null;
    end if;
    insert into agent.audit (actor, action, subject, details)
    values (_actor, _action, _subject, _details)
    returning id into _id;
    return _id;
end
$$;

create or replace function agent.pseudonym(_name text) returns text
language plpgsql stable security invoker
as $$
declare
    _salt text := (select value #>> '{}' from agent.setting where key = 'audit/salt');
begin
    return 'person:'
        || left(encode(sha256(convert_to(_salt || E'\n' || _name, 'UTF8')), 'hex'), 24);
end
$$;

create or replace function agent.audit_log
( _action text default null
, _actor text default null
, _subject text default null
, _since timestamptz default null
, _limit int4 default 20
, _before_id int8 default null
, _since_id int8 default null
) returns setof agent.audit
language plpgsql stable security invoker
as $$
begin
    return query
    select id, at, actor, action, subject, details
    from agent.audit
    where (_action is null or action = _action) and (_actor is null or actor = _actor)
      and (_subject is null or subject = _subject) and (_since is null or at >= _since)
      and id < coalesce(_before_id, 9223372036854775807) and id > coalesce(_since_id, 0)
    order by id desc
    limit _limit;
end
$$;

create or replace function agent.guard_audit() returns trigger
language plpgsql security invoker
as $$
declare
    _prunable_before text := nullif(current_setting('holdfast.prune_audit', true), '');
begin
    if tg_op = 'DELETE' and old.at < _prunable_before::timestamptz then
        return old;
    end if;
    raise exception 'the audit log is append-only; the setting keep_audit prunes it';
end
$$;

create or replace function agent.prune_audit(_before timestamptz) returns int4
language plpgsql security invoker
as $$
declare
    _pruned int4;
begin
    perform set_config('holdfast.prune_audit', _before::text, true);
    delete from agent.audit where at < _before;
    get diagnostics _pruned = row_count;
    perform set_config('holdfast.prune_audit', '', true);
    return _pruned;
end
$$;

-- Created once: recreating a trigger would lock the table against running workers.
do $$
begin
    if not exists
    ( select from pg_catalog.pg_trigger
      where tgrelid = 'agent.audit'::regclass and tgname = 'guard_audit' ) then
        create trigger guard_audit before update or delete on agent.audit
            for each row execute function agent.guard_audit();
        create trigger guard_audit_truncate before truncate on agent.audit
            for each statement execute function agent.guard_audit();
    end if;
end
$$;
