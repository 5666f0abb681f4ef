-- People whom channels know: those who wait for approval have a code, the others were approved.
create table agent.pairing
( channel text collate "C" not null
, sender_id text collate "C" not null
, sender text not null default ''
, subject text collate "C" not null
, code text collate "C"
, requested_at timestamptz not null default agent.now()
, expires_at timestamptz
, approved_at timestamptz
, approved_by text
, primary key (channel, sender_id)
);

create unique index pairing_code on agent.pairing (code);
create index pairing_subject on agent.pairing (subject);
