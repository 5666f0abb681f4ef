-- Reading payloads, and the activity frames built from them.
--
--   read_message    channel, sender, text, conversation … of a payload: the only place that knows
--                   how Slack's payloads and ours differ
--   subject_of      memory subject of the sender
--   collect_key     tells conversations and people apart
--   is_person       whether a key names a subject
--   message_frame   an activity frame about a message
--   report_…        store frames for received, failed and dead messages
--
-- Payloads of ours carry a tag, "kind"; one without it in the inbox is an event as Slack sent it.
-- holdfast/message.py reads payloads in the same way.

-- `subject` is '' if the sender is unknown. Every row derived from a message stores it, so that
-- forgetting a person finds all their rows.
create or replace function agent.read_message
( _event jsonb
, out channel text
, out sender text
, out sender_id text
, out text text
, out workspace text
, out conversation text
, out subject text
)
language plpgsql immutable parallel safe security invoker
as $$
begin
    if _event ? 'kind' then
        channel := _event ->> 'channel';
        sender := _event ->> 'sender';
        sender_id := _event ->> 'sender_id';
        text := _event ->> 'message';
        workspace := _event ->> 'workspace';
        conversation := _event ->> 'conversation';
    else
        channel := 'slack';
        sender := _event ->> 'user';
        sender_id := sender;
        text := _event ->> 'text';
        workspace := _event ->> 'team';
        conversation := concat_ws(':', 'slack', workspace, _event ->> 'channel'
            , coalesce(nullif(_event ->> 'thread_ts', ''), _event ->> 'ts'));
    end if;
    subject := coalesce(coalesce(nullif(workspace, ''), 'default') || ':USER:'
        || replace(coalesce(channel, ''), ':', '_')
        || case when btrim(sender_id) <> '' then ':id:' || sender_id
             when btrim(sender) <> '' then ':name:' || sender end, '');
end
$$;

create or replace function agent.subject_of(_event jsonb) returns text
language plpgsql immutable parallel safe security invoker
as $$
begin
    return (agent.read_message(_event)).subject;
end
$$;

-- Only messages with equal keys may share a turn. A sender without an id is known by name, which
-- never equals an id.
create or replace function agent.collect_key(_event jsonb) returns text[]
language plpgsql immutable parallel safe security invoker
as $$
declare
    _message record := agent.read_message(_event);
    _sender_id text := nullif(coalesce(nullif(_message.sender_id, ''), _event ->> 'bot_id'), '');
begin
    return array
    [ coalesce(nullif(_event ->> 'kind', ''), 'slack'), nullif(_message.channel, '')
    , nullif(_message.conversation, ''), nullif(_event ->> 'room', ''), _sender_id
    , case when _sender_id is null then nullif(_message.sender, '') end ];
end
$$;

create or replace function agent.subject_key(_workspace text, _type text, _id text) returns text
language sql immutable security invoker parallel safe
return _workspace || ':' || upper(_type) || ':' || _id;

-- A key without a channel, such as default:USER:ann, names everybody with that id or name.
-- holdfast.memory.observation.is_person applies the same rule.
create or replace function agent.is_person(_subject text, _key text) returns bool
language sql immutable parallel safe security invoker
return coalesce(_subject = _key
    or _key ~ '^[^:]+:USER:' and _key !~ '^[^:]+:USER:[^:]*:(id|name):.'
      and _subject in
      ( regexp_replace(_key, '^([^:]+:USER:).*$', '\1') || split_part(_subject, ':', 3)
          || ':id:' || regexp_replace(_key, '^[^:]+:USER:', '')
      , regexp_replace(_key, '^([^:]+:USER:).*$', '\1') || split_part(_subject, ':', 3)
          || ':name:' || regexp_replace(_key, '^[^:]+:USER:', '')
      ), false);

-- The default agent's name for frames, '' if there is none. Null if no API has ever asked for
-- activity: then no frames are stored.
create or replace function agent.activity_agent() returns text
language plpgsql stable security invoker
as $$
begin
    return
    ( select coalesce
          ((select value ->> 'default' from agent.setting where key = 'routing'), '')
      from agent.setting
      where key = 'activity' and value = 'true' );
end
$$;

-- The keys that all frames about a message have, and the beginning of its text once it is received.
create or replace function agent.message_frame
( _type text
, _id int8
, _message_id text
, _agent text
, _event jsonb
, _sent_by text
) returns jsonb
language plpgsql immutable security invoker
as $$
declare
    _message record := agent.read_message(_event);
    _frame jsonb := jsonb_build_object
    ( 'type', _type, 'messageId', coalesce(_message_id, _id::text), 'agent', _agent
    , 'channel', coalesce(_message.channel, ''), 'sender', coalesce(_message.sender, '')
    , 'subject', _message.subject, 'sentBy', _sent_by );
begin
    if _type = 'message_received' then
        return _frame || jsonb_build_object('message', left(_message.text, 2000));
    end if;
    return _frame;
end
$$;

create or replace function agent.report_received(_ids int8[]) returns void
language plpgsql security invoker
as $$
declare
    _default text := agent.activity_agent();
begin
    insert into agent.activity (frames)
    select json_agg(agent.message_frame('message_received', id, message_id
        , coalesce(nullif(target, ''), _default), event, sent_by) order by id)
    from agent.event
    where id = any (_ids) and queue = 'inbox' and _default is not null
    having count(*) > 0;
end
$$;

-- Trigger function for plain inserts. agent.put reports its events itself, many at once.
create or replace function agent.note_insert() returns trigger
language plpgsql security invoker
as $$
begin
    perform agent.report_received(array[new.id]);
    return null;
end
$$;

create or replace function agent.report_failed(_ids int8[]) returns void
language plpgsql security invoker
as $$
declare
    _default text := agent.activity_agent();
begin
    insert into agent.activity (frames)
    select json_agg(agent.message_frame('message_failed', id, message_id
        , coalesce(nullif(target, ''), _default), event, sent_by)
        || jsonb_build_object('eventId', id, 'error', last_error, 'errorClass', error_class
             , 'attempts', attempts, 'dead', false) order by id)
    from agent.event
    where id = any (_ids) and queue = 'inbox' and _default is not null
    having count(*) > 0;
end
$$;

-- Called while the events are still live.
create or replace function agent.report_dead
( _ids int8[]
, _outcomes text[]
, _errors text[]
, _classes text[]
) returns void
language plpgsql security invoker
as $$
declare
    _default text := agent.activity_agent();
begin
    insert into agent.activity (frames)
    select json_agg(agent.message_frame('message_failed', event.id, message_id
        , coalesce(nullif(target, ''), _default), event, sent_by)
        || jsonb_build_object
           ( 'eventId', event.id
           , 'error', coalesce(error, last_error, agent.default_error(outcome))
           , 'errorClass', case when error is null then event.error_class else class end
           , 'attempts', attempts, 'dead', true )
        order by event.id)
    from unnest(_ids, _outcomes, _errors, _classes) as ended (id, outcome, error, class)
    cross join lateral (select * from agent.event where event.id = ended.id offset 0) as event
    where outcome = any (agent.dead_outcomes()) and queue = 'inbox' and _default is not null
    having count(*) > 0;
end
$$;
