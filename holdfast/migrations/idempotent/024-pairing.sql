-- Pairing: strangers on a channel wait until somebody approves their code.
--
--   request_pairing   stores a stranger's request, or returns the pairing that exists
--   approve_pairing   admits the person with this code
--   revoke_pairing    removes a person or a request

-- Returns no row if the channel has too many open requests, or if the code is taken.
create or replace function agent.request_pairing
( _channel text
, _sender_id text
, _sender text
, _subject text
, _code text
, _expires_after interval
, _most int4
) returns setof agent.pairing
language plpgsql security invoker
as $$
begin
    -- Without the lock, two concurrent requests could both be the last one allowed.
    lock table agent.pairing in share row exclusive mode;
    delete from agent.pairing where expires_at <= agent.now();
    return query
    select * from agent.pairing where channel = _channel and sender_id = _sender_id;
    if found then
        return;
    end if;
    return query
    insert into agent.pairing
    ( channel, sender_id, sender, subject, code, requested_at, expires_at )
    select _channel, _sender_id, _sender, _subject, _code, agent.now(), agent.now() + _expires_after
    where (select count(*) from agent.pairing where channel = _channel and code is not null) < _most
    on conflict do nothing
    returning *;
end
$$;

-- Returns no row if the code is unknown or has expired.
create or replace function agent.approve_pairing(_code text, _actor text default null)
returns setof agent.pairing
language plpgsql security invoker
as $$
declare
    _approved agent.pairing;
begin
    update agent.pairing
    set code = null, expires_at = null, approved_at = agent.now(), approved_by = _actor
    where code = _code and expires_at > agent.now()
    returning * into _approved;
    if not found then
        return;
    end if;
    perform agent.add_audit(_actor, 'approved', agent.pseudonym(_approved.subject)
        , jsonb_build_object('channel', _approved.channel));
    return next _approved;
end
$$;

-- Returns whether there was such a person or request.
create or replace function agent.revoke_pairing
( _channel text, _sender_id text, _actor text default null ) returns bool
language plpgsql security invoker
as $$
declare
    _subject text;
begin
    delete from agent.pairing where channel = _channel and sender_id = _sender_id
    returning subject into _subject;
    if not found then
        return false;
    end if;
    perform agent.add_audit(_actor, 'revoked', agent.pseudonym(_subject)
        , jsonb_build_object('channel', _channel));
    return true;
end
$$;
