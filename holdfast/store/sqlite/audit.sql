-- The audit log: appended to and read.

-- name: add_audit
insert into audit (at, actor, action, subject, details) values (:at, :actor, :action, :subject, :details);

-- name: audit_log
select id, at, actor, action, subject, details
from audit
where (:action is null or action = :action) and (:actor is null or actor = :actor)
  and (:subject is null or subject = :subject) and (:since is null or at >= :since)
  and id < :before_id and id > :since_id
order by id desc
limit :limit;

-- name: prune_audit
delete from audit where at < :before;
