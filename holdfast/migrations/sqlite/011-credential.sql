-- Tokens of people and programs, browser sessions and one-time login codes. Only digests of their secrets are stored.
create table credential (
  id text primary key,
  kind text not null check (kind in ('token', 'session', 'code')),
  digest text not null unique,
  name text not null,
  role text not null check (role in ('read', 'send', 'admin')),
  -- what it is bound to; null: anything
  channels text check (channels is null or json_valid(channels)),
  agents text check (agents is null or json_valid(agents)),
  sender text,
  -- whose messages it sees with role send: a token's id, or a person's; null: everybody's
  owner text,
  created_at integer not null,
  expires_at integer,
  used_at integer
) strict, without rowid;

create unique index credential_token_name on credential (name) where kind = 'token';
