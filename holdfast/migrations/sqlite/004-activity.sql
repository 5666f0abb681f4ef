-- What happened, for whoever watches: a row holds the frames of one commit, and is written in it. Writers take turns, so
-- that ids are in the order of commits, and an id is the position.

create table activity (
  id integer primary key autoincrement,
  frames text not null,
  created_at integer not null default (
    cast(strftime('%s', 'now') as integer) * 1000000 + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000
  )
) strict;

-- What we put names its root; a plain insert does not, and is a message received all the same.
create trigger event_received after insert on event
when new.queue = 'inbox' and new.root_id is null
begin
  insert into activity (frames)
  select json_array(json_object(
    'type', 'message_received',
    'messageId', coalesce(new.message_id, cast(new.id as text)),
    'agent', coalesce(
      nullif(new.target, ''), (select json_extract(value, '$.default') from setting where key = 'routing'), ''
    ),
    'channel', iif(json_type(new.event, '$.kind') is null, 'slack', json_extract(new.event, '$.channel')),
    'sender', json_extract(new.event, iif(json_type(new.event, '$.kind') is null, '$.user', '$.sender')),
    'message', substr(
      json_extract(new.event, iif(json_type(new.event, '$.kind') is null, '$.text', '$.message')), 1, 2000
    )
  ))
  where coalesce((select json_extract(value, '$') from setting where key = 'activity'), 0);
end;
