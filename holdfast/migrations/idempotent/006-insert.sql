-- Events as Slack sent them, and append-only history.
--
--   insert_event   one Slack event, from any transaction
--   lane_of        the lane of an agent's conversation; attempts_of the attempts of an agent
--   line_offset    difference between the id of a line and that of its event
--   record         stores lines of agents' histories and of rooms, conversations, observations and
--                  frames of activity; record_lines, record_chat and list_conversations are parts
--   add_chat_message  one line of a room
--   tell           frames of activity

-- The agent that works a message; '' in _agent stands for the default agent.
create or replace function agent.worker_of(_routing jsonb, _agent text) returns text
language plpgsql immutable security invoker
as $$
begin
    return coalesce(nullif(_agent, ''), _routing ->> 'default', '');
end
$$;

-- The lane of a message, by the policy that the harness wrote to agent.setting: one lane per
-- conversation (the default), one per agent, or none.
create or replace function agent.lane_of(_routing jsonb, _agent text, _conversation text)
returns text
language plpgsql immutable security invoker
as $$
declare
    _worker text := agent.worker_of(_routing, _agent);
begin
    return case coalesce(_routing -> 'lanes' ->> _worker, 'conversation')
        when 'none' then null
        when 'agent' then _worker
        else _worker || '/' || _conversation
    end;
end
$$;

-- The attempts of a message for an agent; null if the agent has no number of its own.
create or replace function agent.attempts_of(_routing jsonb, _agent text) returns int4
language plpgsql immutable security invoker
as $$
declare
    _attempts jsonb := _routing -> 'attempts' -> agent.worker_of(_routing, _agent);
begin
    return case when jsonb_typeof(_attempts) = 'number' then greatest(_attempts::int4, 1) end;
end
$$;

-- Returns the id, null if that message is already stored. Does not go through agent.put: a script
-- may insert tens of thousands of events in one transaction, one call each.
create or replace function agent.insert_event
( _event jsonb
, _queue text default 'inbox'
, _agent text default null
, _lane text default null
, _message_id text default null
, _vt timestamptz default null
, _max_attempts int4 default null
) returns int8
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _event_ts timestamptz := agent.platform_time(_event ->> 'event_ts');
    _id int8;
begin
    if _event is null or jsonb_typeof(_event) <> 'object' then
        raise invalid_parameter_value
            using message = 'insert_event takes a JSON object, the event as Slack sent it';
    end if;
    select * into _lane, _message_id, _max_attempts
    from agent.route_event(_event, _queue, _agent, _lane, _message_id, _max_attempts);
    _id := nextval('agent.event_id_seq');
    if not agent.keep_key(_queue, _message_id, _id) then
        return null;
    end if;
    insert into agent.event
    ( id, event_ts, vt, event, queue, target, lane, message_id, max_attempts, root_id, created_at
    , updated_at )
    values
    ( _id, case when _event_ts >= '1970-01-01Z' and _event_ts < '2200-01-01Z' then _event_ts
             else _now end
    , coalesce(_vt, _now), _event, _queue, coalesce(_agent, '')
    , case when _vt > _now then null else nullif(_lane, '') end, _message_id, _max_attempts, _id
    , _now, _now );
    perform agent.report_stored(_id, _queue, _agent, _message_id, _event);
    return _id;
end
$$;

-- Fills in the lane, message id and attempts that the caller left open. A payload without channel
-- and ts gets neither lane nor message id.
create or replace function agent.route_event
( _event jsonb
, _queue text
, _agent text
, inout lane text
, inout message_id text
, inout max_attempts int4
)
language plpgsql stable security invoker
as $$
declare
    _routing jsonb := (select value from agent.setting where key = 'routing');
    _channel text := _event ->> 'channel';
    _ts text := _event ->> 'ts';
begin
    if _channel is not null and _ts is not null then
        message_id := coalesce(message_id
            , 'slack_' || concat_ws('_', _event ->> 'team', _channel, _ts));
        lane := coalesce(lane
            , agent.lane_of(_routing, _agent, (agent.read_message(_event)).conversation));
    end if;
    if _queue = 'inbox' then
        max_attempts := coalesce(max_attempts, agent.attempts_of(_routing, _agent));
    end if;
end
$$;

create or replace function agent.line_offset() returns int8
language plpgsql stable security invoker
as $$
begin
    return coalesce((select value::int8 from agent.setting where key = 'line_offset'), 0);
end
$$;

-- Adds the lines of agents' histories among records. "event_id" is the event of a user's line;
-- answers draw an id of their own.
create or replace function agent.record_lines(_records jsonb) returns void
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _offset int8 := agent.line_offset();
begin
    insert into agent.agent_message
    ( id, agent_id, role, channel, sender, message_id, content, conversation, subject, origin
    , created_at )
    select coalesce(event_id, nextval('agent.event_id_seq')) + _offset, agent_id, role, channel
         , sender, message_id, content, coalesce(conversation, ''), coalesce(subject, '')
         , coalesce(origin, ''), coalesce(created_at, _now)
    from jsonb_to_recordset(_records) as row
        ( agent_id text, role text, channel text, sender text, message_id text, content text
        , conversation text, subject text, origin text, event_id int8, created_at timestamptz )
    where agent_id is not null
    on conflict (id) do nothing;
end
$$;

-- {"agent_id": …} is a line of an agent's history, {"team_id": …} one of a team's room,
-- {"subject_type": …} an observation, {"title": …} a conversation, {"original": …} a message that
-- replaces another, {"file_ids": …} and {"file_id": …} its files, {"frames": …} frames of activity
-- as JSON text. All frames go into one row.
create or replace function agent.record(_records jsonb) returns void
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    if _records is null or jsonb_array_length(_records) = 0 then
        return;
    end if;
    if _records @? '$[*].agent_id' then
        perform agent.record_lines(_records);
    end if;
    if _records @? '$[*].team_id' then
        insert into agent.chat_message (team_id, from_agent, message, subject, key, created_at)
        select team_id, from_agent, message, coalesce(subject, ''), coalesce(key, ''), _now
        from jsonb_to_recordset(_records) as row
            (team_id text, from_agent text, message text, subject text, key text)
        where team_id is not null;
    end if;
    if _records @? '$[*] ? (exists (@.title) || exists (@.original) || exists (@.file_ids)
            || exists (@.file_id))' then
        perform agent.record_chat(_records);
    end if;
    if _records @? '$[*].subject_type' then
        perform agent.keep_observation(line)
        from jsonb_array_elements(_records) as line where line ? 'subject_type';
    end if;
    if _records @? '$[*].frames' then
        insert into agent.activity (frames)
        select ('[' || string_agg(frames, ',' order by nth) || ']')::json
        from rows from (jsonb_to_recordset(_records) as (frames text))
            with ordinality as row (frames, nth)
        where frames is not null and agent.activity_agent() is not null
        having count(*) > 0;
    end if;
end
$$;

-- Records of the chat: conversations, versions of messages, and files.
create or replace function agent.record_chat(_records jsonb) returns void
language plpgsql security invoker
as $$
begin
    if _records @? '$[*].title' then
        perform agent.list_conversations(_records);
    end if;
    if _records @? '$[*].original' then
        perform agent.keep_versions(_records);
    end if;
    if _records @? '$[*].file_ids' or _records @? '$[*].file_id' then
        perform agent.keep_files(_records);
    end if;
end
$$;

-- Adds conversations to their list, or moves them to its top; the first title stays. Writes in the
-- order of the key, so that two transactions never wait for each other.
create or replace function agent.list_conversations(_records jsonb) returns void
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    insert into agent.conversation
    ( conversation, owner, channel, sender, title, subject, created_at, updated_at )
    select distinct on (conversation, owner)
           conversation, owner, channel, sender, title, subject, _now, _now
    from rows from
    ( jsonb_to_recordset(_records) as
      ( conversation text, owner text, channel text, sender text, title text, subject text )
    ) with ordinality as row (conversation, owner, channel, sender, title, subject, nth)
    where title is not null
    order by conversation, owner, nth
    on conflict (conversation, owner) do update
    set id = excluded.id, updated_at = excluded.updated_at, archived = false;
end
$$;

-- Stores that messages replace earlier ones: {"original": …, "message_id": …, "conversation": …}.
create or replace function agent.keep_versions(_records jsonb) returns void
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _new record;
begin
    for _new in
        select original, message_id, conversation
        from jsonb_to_recordset(_records) as row
            (original text, message_id text, conversation text)
        where original is not null
    loop
        insert into agent.message_version
        ( message_id, original, conversation, superseded, created_at )
        values (_new.original, _new.original, _new.conversation, true, _now)
        on conflict (message_id) do nothing;
        update agent.message_version set superseded = true where original = _new.original;
        insert into agent.message_version
        ( message_id, original, conversation, superseded, created_at )
        values (_new.message_id, _new.original, _new.conversation, false, _now)
        on conflict (message_id) do nothing;
    end loop;
end
$$;

-- Gives uploaded files to the messages that carry them, {"file_ids": …}, and adds files of answers,
-- {"file_id": …}.
create or replace function agent.keep_files(_records jsonb) returns void
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    update agent.file
    set message_id = sent.message_id, conversation = sent.conversation, subject = sent.subject
    from jsonb_to_recordset(_records) as sent
        (file_ids text[], owner text, message_id text, conversation text, subject text)
    where file.id = any (sent.file_ids) and file.owner = sent.owner and file.message_id is null;
    insert into agent.file
    ( id, owner, name, type, size, created_at, message_id, agent, path, conversation, subject )
    select file_id, owner, name, type, size, _now, message_id, agent, path, conversation, subject
    from jsonb_to_recordset(_records) as row
        ( file_id text, owner text, name text, type text, size int8, message_id text, agent text
        , path text, conversation text, subject text )
    where file_id is not null
    on conflict (id) do nothing;
end
$$;

create or replace function agent.tell(_frames json) returns void
language plpgsql security invoker
as $$
begin
    insert into agent.activity (frames) values (_frames);
end
$$;

-- Appends a line to a team's room and returns its id. _key names the line in copies of it.
create or replace function agent.add_chat_message
( _team_id text
, _from_agent text
, _message text
, _subject text default ''
, _key text default ''
) returns int8
language plpgsql security invoker
as $$
declare
    _id int8;
begin
    insert into agent.chat_message (team_id, from_agent, message, subject, key, created_at)
    values (_team_id, _from_agent, _message, _subject, _key, agent.now())
    returning id into _id;
    return _id;
end
$$;
