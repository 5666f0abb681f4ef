-- All that is kept of a message names the person behind it, so that forgetting finds it when the event is long gone.
-- Rows of earlier releases have '', and forgetting says how many they are.
alter table agent_message add column subject text not null default '';
alter table chat_message add column subject text not null default '';
-- Copies of a line that members of the room get carry this key.
alter table chat_message add column key text not null default '';

-- The same frame as before, with its subject, which carries the channel and says whether it is an id or a name;
-- holdfast.queue.event.subject_of says the same.
drop trigger event_received;

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
    'subject', coalesce(
      iif(
        json_type(new.event, '$.kind') is null,
        coalesce(nullif(json_extract(new.event, '$.team'), ''), 'default') || ':USER:slack:id:'
          || nullif(trim(json_extract(new.event, '$.user')), ''),
        coalesce(nullif(json_extract(new.event, '$.workspace'), ''), 'default') || ':USER:'
          || replace(coalesce(json_extract(new.event, '$.channel'), ''), ':', '_')
          || case
            when trim(json_extract(new.event, '$.sender_id')) <> '' then ':id:' || json_extract(new.event, '$.sender_id')
            when trim(json_extract(new.event, '$.sender')) <> '' then ':name:' || json_extract(new.event, '$.sender')
          end
      ),
      ''
    ),
    'message', substr(
      json_extract(new.event, iif(json_type(new.event, '$.kind') is null, '$.text', '$.message')), 1, 2000
    )
  ))
  where coalesce((select json_extract(value, '$') from setting where key = 'activity'), 0);
end;
