-- Tokens of people and programs, browser sessions and one-time login codes. Only digests of their secrets are stored.
create table agent.credential
( id text collate "C" primary key
, kind text not null check (kind in ('token', 'session', 'code'))
, digest text collate "C" not null unique
, name text not null
, role text not null check (role in ('read', 'send', 'admin'))
-- The bounds of a credential; null: anything.
, channels jsonb
, agents jsonb
, sender text
-- The sender whose messages it sees with role send: a token's id, or a person's. Null: everybody's.
, owner text
, created_at timestamptz not null
, expires_at timestamptz
, used_at timestamptz
);

create unique index credential_token_name on agent.credential (name) where kind = 'token';
