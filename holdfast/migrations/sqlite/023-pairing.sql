-- People whom channels know: those who wait for approval have a code, the others were approved.
create table pairing (
  channel text not null,
  sender_id text not null,
  sender text not null default '',
  subject text not null,
  code text,
  requested_at integer not null,
  expires_at integer,
  approved_at integer,
  approved_by text,
  primary key (channel, sender_id)
) strict;

create unique index pairing_code on pairing (code);
create index pairing_subject on pairing (subject);
