-- The audit log. Rows are appended; the triggers refuse every change but retention.
create table audit (
  id integer primary key autoincrement,
  at integer not null default (
    cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
  ),
  actor text not null,
  action text not null,
  subject text not null default '',
  details text not null default '{}' check (json_valid(details))
) strict;

create index audit_action on audit (action);
create index audit_actor on audit (actor);

create trigger audit_is_not_changed before update on audit
begin
  select raise(abort, 'the audit log is append-only');
end;

-- Retention writes `audit/prune_before` in its own transaction and removes it again.
create trigger audit_is_not_deleted before delete on audit
when not exists (select 1 from setting where key = 'audit/prune_before' and old.at < cast(value as integer))
begin
  select raise(abort, 'the audit log is append-only; the setting `keep_audit` prunes it');
end;

-- Pseudonyms of people in the log: without this value nobody can tell whom they name.
insert or ignore into setting (key, value) values ('audit/salt', '"' || lower(hex(randomblob(32))) || '"');
