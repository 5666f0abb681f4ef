Pairings: strangers on a channel wait with a code until somebody approves it.

-- name: find_pairing
select channel, sender_id, sender, code, requested_at, expires_at, approved_at, approved_by
from pairing
where channel = :channel and sender_id = :sender_id and (expires_at is null or expires_at > :now);

-- name: drop_expired_pairings
delete from pairing where expires_at <= :now;

-- name: add_pairing
insert into pairing (channel, sender_id, sender, subject, code, requested_at, expires_at)
select :channel, :sender_id, :sender, :subject, :code, :now, :expires_at
where (select count(*) from pairing where channel = :channel and code is not null) < :most
on conflict do nothing;

-- name: open_pairings
select channel, sender_id, sender, code, requested_at, expires_at, approved_at, approved_by
from pairing
where code is not null and expires_at > :now
order by requested_at, code;

-- name: approved_pairings
select channel, sender_id, sender, code, requested_at, expires_at, approved_at, approved_by
from pairing
where approved_at is not null
order by channel, sender_id;

-- name: approve_pairing
update pairing
set code = null, expires_at = null, approved_at = :now, approved_by = :actor
where code = :code and expires_at > :now
returning channel, sender_id, subject;

-- name: revoke_pairing
delete from pairing
where channel = :channel and sender_id = :sender_id
returning subject;

-- name: forget_pairings
delete from pairing where subject = :subject_key;
