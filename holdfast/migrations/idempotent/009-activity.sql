-- What happened, for whoever watches.
--
--   activity_agent     the default agent's name, for frames; null unless an API has been there to tell it
--   subject_of         the memory subject of the person behind a payload
--   is_person          whether a subject is the person whom a key names
--   about              the part that all frames about a message share
--   note_received      messages that came into the inbox, by the ids of their events
--   note_insert        (trigger) the same for a plain insert
--   note_failed        events whose turn failed and that come back
--   note_dead          events that become dead letters
--   place_activity     gives places to what is committed
--   read_activity      rows from a place on
--   activity_page      rows from a place on, up to the one that reaches a number of bytes
--   activity_span      the oldest place kept, and the one that comes next
--   forget_activity    drops what is older

create or replace function agent.activity_agent() returns text
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if (select value from agent.setting where key = 'activity') is distinct from 'true' then
        return null;
    end if;
    return coalesce((select value ->> 'default' from agent.setting where key = 'routing'), '');
end
$$;

-- '' if nobody is known. It stands in all that is kept of a message, so that forgetting a person finds it;
-- holdfast.message.subject_of says the same.
-- plpgsql, and not sql: such a function with a search_path of its own is planned at every call, and every put calls it.
create or replace function agent.subject_of(_event jsonb) returns text
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(case when _event ? 'kind'
        then coalesce(nullif(_event ->> 'workspace', ''), 'default') || ':USER:'
          || replace(coalesce(_event ->> 'channel', ''), ':', '_')
          || case when btrim(_event ->> 'sender_id') <> '' then ':id:' || (_event ->> 'sender_id')
               when btrim(_event ->> 'sender') <> '' then ':name:' || (_event ->> 'sender') end
        else coalesce(nullif(_event ->> 'team', ''), 'default') || ':USER:slack:id:' || nullif(btrim(_event ->> 'user'), '')
        end, '');
end
$$;

-- Whether a subject is the person whom a key names. A key without a channel, such as default:USER:ann, names everybody with
-- that id or name. holdfast.memory.observation.is_person says the same.
create or replace function agent.is_person(_subject text, _key text) returns bool
language sql immutable parallel safe security invoker
set search_path = pg_catalog, pg_temp
return coalesce(_subject = _key
    or _key ~ '^[^:]+:USER:' and _key !~ '^[^:]+:USER:[^:]*:(id|name):.'
      and _subject in
      ( regexp_replace(_key, '^([^:]+:USER:).*$', '\1') || split_part(_subject, ':', 3) || ':id:' || regexp_replace(_key, '^[^:]+:USER:', '')
      , regexp_replace(_key, '^([^:]+:USER:).*$', '\1') || split_part(_subject, ':', 3) || ':name:' || regexp_replace(_key, '^[^:]+:USER:', '')
      ), false);

drop function if exists agent.about(text, int8, text, text, jsonb);

create or replace function agent.about
( _type text
, _id int8
, _message_id text
, _agent text
, _event jsonb
, _sent_by text
) returns jsonb
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return jsonb_build_object
    ( 'type', _type, 'messageId', coalesce(_message_id, _id::text), 'agent', _agent
    , 'channel', case when _event ? 'kind' then coalesce(_event ->> 'channel', '') else 'slack' end
    , 'sender', coalesce(_event ->> case when _event ? 'kind' then 'sender' else 'user' end, '')
    , 'subject', agent.subject_of(_event)
    , 'sentBy', _sent_by );
end
$$;

create or replace function agent.note_received(_ids int8[]) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _default text := agent.activity_agent();
begin
    insert into agent.activity (frames)
    select json_agg(agent.about('message_received', id, message_id, coalesce(nullif(target, ''), _default), event, sent_by)
        || jsonb_build_object('message', left(event ->> case when event ? 'kind' then 'message' else 'text' end, 2000)) order by id)
    from agent.event
    where id = any (_ids) and queue = 'inbox' and _default is not null
    having count(*) > 0;
end
$$;

create or replace function agent.note_insert() returns trigger
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    perform agent.note_received(array[new.id]);
    return null;
end
$$;

create or replace function agent.note_failed(_ids int8[]) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _default text := agent.activity_agent();
begin
    insert into agent.activity (frames)
    select json_agg(agent.about('message_failed', id, message_id, coalesce(nullif(target, ''), _default), event, sent_by)
        || jsonb_build_object('eventId', id, 'error', last_error, 'errorClass', error_class, 'attempts', attempts, 'dead', false) order by id)
    from agent.event
    where id = any (_ids) and queue = 'inbox' and _default is not null
    having count(*) > 0;
end
$$;

-- Called while they are still there.
create or replace function agent.note_dead(_ids int8[], _outcomes text[], _errors text[], _classes text[]) returns void
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _default text := agent.activity_agent();
begin
    insert into agent.activity (frames)
    select json_agg(agent.about('message_failed', event.id, message_id, coalesce(nullif(target, ''), _default), event, sent_by)
        || jsonb_build_object
           ( 'eventId', event.id, 'error', coalesce(error, last_error, case outcome when 'dead' then 'no attempts left' else outcome end)
           , 'errorClass', case when error is null then event.error_class else class end
           , 'attempts', attempts, 'dead', true )
        order by event.id)
    from unnest(_ids, _outcomes, _errors, _classes) as ended (id, outcome, error, class)
    cross join lateral (select * from agent.event where event.id = ended.id offset 0) as event
    where outcome in ('dead', 'expired', 'cancelled') and queue = 'inbox' and _default is not null
    having count(*) > 0;
end
$$;

-- At most _limit rows at once; how many were placed. Whoever finds another at it need not wait: it places the same rows.
create or replace function agent.place_activity(_limit int4 default 10000, _wait bool default false) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _last int8;
    _placed int4;
begin
    -- A look before the lock: a lock is a write, and most looks find nothing.
    perform from agent.activity where place is null order by id limit 1;
    if not found then
        return 0;
    end if;
    if _wait then
        perform from agent.activity_end for update;
    end if;
    select place into _last from agent.activity_end for update skip locked;
    if not found then
        return 0;
    end if;
    -- A statement of its own, so that it sees what the last holder of the lock has placed.
    with unplaced as materialized
    ( select id from agent.activity where place is null order by id limit _limit )
    , placed as
    ( select id, _last + row_number() over (order by id) as place from unplaced )
    update agent.activity as activity
    set place = placed.place
    from placed
    where activity.place is null and activity.id = placed.id;
    get diagnostics _placed = row_count;
    update agent.activity_end set place = _last + _placed where _placed > 0;
    return _placed;
end
$$;

create or replace function agent.read_activity(_place int8, _limit int4 default 500)
returns table (place int8, frames text, created_at timestamptz)
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
    perform agent.place_activity();
    return query
    select activity.place, activity.frames::text, activity.created_at
    from agent.activity as activity
    where activity.place is not null and activity.place >= _place
    order by activity.place
    limit _limit;
end
$$;

create or replace function agent.activity_page(_place int8, _limit int4, _most_bytes int8)
returns table (place int8, frames text, created_at timestamptz)
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    _bytes int8 := 0;
begin
    perform agent.place_activity();
    for place, frames, created_at in
        select activity.place, activity.frames::text, activity.created_at
        from agent.activity as activity
        where activity.place is not null and activity.place >= _place
        order by activity.place
        limit _limit
    loop
        return next;
        _bytes := _bytes + octet_length(frames);
        exit when _bytes >= _most_bytes;
    end loop;
end
$$;

create or replace function agent.activity_span(out first int8, out next int8)
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    -- It waits for others: "now" is after all that is committed, also for those who ask at the same time.
    while agent.place_activity(_wait => true) > 0 loop
    end loop;
    next := (select place + 1 from agent.activity_end);
    first := coalesce((select min(place) from agent.activity where place is not null), next);
end
$$;

-- Only ever from the oldest on, so that what is kept has no holes. At most 1,000 rows at once; how many it were.
create or replace function agent.forget_activity(_keep interval) returns int4
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
    _before timestamptz := agent.now() - _keep;
    _until int8;
    _forgotten int4;
begin
    perform agent.place_activity();
    select coalesce(min(place) filter (where created_at >= _before), max(place) + 1) into _until
    from
    ( select place, created_at from agent.activity
      where place is not null order by place limit 1000
    ) as oldest;
    delete from agent.activity where place < _until;
    get diagnostics _forgotten = row_count;
    return _forgotten;
end
$$;

-- Made once: to make a trigger anew would lock the table against running workers. What agent.put stores names its root
-- and is noted there, many at once.
do $$
begin
    if not exists (select from pg_catalog.pg_trigger where tgrelid = 'agent.event'::regclass and tgname = 'note_insert') then
        create trigger note_insert after insert on agent.event for each row
            when (new.queue = 'inbox' and new.root_id is null) execute function agent.note_insert();
    end if;
end
$$;
