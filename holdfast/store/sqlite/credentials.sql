-- Tokens, sessions and login codes.

-- name: drop_expired_credentials
delete from credential where kind <> 'token' and expires_at <= :now;

-- name: add_credential
insert into credential (
  id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at, digest
)
values (
  :id, :kind, :name, :role, :channels, :agents, :sender, :owner, :created_at, :expires_at, :used_at, :digest
)
on conflict do nothing;

-- name: find_credential
select id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at
from credential
where digest = :digest and kind = :kind and (expires_at is null or expires_at > :now)
  -- a session or code of a token ends with it
  and not exists (
    select 1 from credential as token
    where token.id = credential.owner and token.kind = 'token' and token.expires_at <= :now
  );

-- name: use_credential
update credential set used_at = :now where id = :id;

-- name: take_code
delete from credential
where digest = :digest and kind = 'code' and (expires_at is null or expires_at > :now)
returning id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at;

-- name: tokens
select id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at
from credential
where kind = 'token'
order by name, id;

-- name: revoke_token
delete from credential
where owner = (select id from credential where kind = 'token' and name = :name)
returning id, kind, name, role, channels, agents, sender, owner, created_at, expires_at, used_at;

-- name: end_session
delete from credential where id = :id;

-- name: end_sessions
delete from credential where kind <> 'token' and owner is null and role = :role returning kind;
