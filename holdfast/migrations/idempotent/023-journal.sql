-- The journal of an event: steps of its turns, the text written so far, and signals.
--
--   record_journal    stores entries of many turns, each under its fence
--   record_step       stores one step of one turn
--   put_step, write_journal, write_text  parts of these two
--   signal_event      keeps a signal for an event and resumes its turn if that waits for the name
--   take_signal       takes the oldest signal of a name as the result of a step
--   resume_signalled  makes events due whose awaited signal has arrived
--   assume_effects    decides about once-steps that may have happened
--   blank_journals    erases everything that anybody wrote; keys and states stay
--   erase_journals    deletes the journals of events; erase_journals_of: of all events of a chunk

-- _entries: array of {"id": n, "fence": n} with, as wanted, steps (array), write ({"generation",
-- "offset", "length", "text"}), progress, preview and frames (activity, as in agent.record).
-- Returns for each entry whether its turn is held; nothing is stored of a lost one.
--
-- Locks the primary event of each turn, in the order of ids, as settle, renew and reap do. The
-- primary event is enough: a turn never loses another event without losing that one.
create or replace function agent.record_journal(_entries jsonb) returns bool[]
language plpgsql security invoker
as $$
declare
    _ids int8[] := array(select id from jsonb_to_recordset(_entries) as entry (id int8));
    _held bool[];
begin
    with event as materialized
    ( select id, fence from agent.event
      where id = any (_ids) and fence > 0
      order by id
      for no key update
    )
    select array_agg(event.id is not null order by entry.nth) into _held
    from rows from (jsonb_to_recordset(_entries) as (id int8, fence int8))
        with ordinality as entry (id, fence, nth)
    left join event on event.id = entry.id and event.fence = entry.fence;
    perform agent.put_step((entry.body -> 'id')::int8, step.body)
    from jsonb_array_elements(_entries) with ordinality as entry (body, nth)
    cross join lateral jsonb_array_elements(entry.body -> 'steps')
        with ordinality as step (body, nth)
    where _held[entry.nth]
    order by entry.nth, step.nth;
    perform agent.write_journal(entry.body)
    from jsonb_array_elements(_entries) with ordinality as entry (body, nth)
    where _held[entry.nth] and entry.body ?| array['write', 'progress', 'preview']
    order by entry.nth;
    perform agent.record(jsonb_agg(jsonb_build_object('frames', entry.body -> 'frames')
        order by entry.nth))
    from jsonb_array_elements(_entries) with ordinality as entry (body, nth)
    where _held[entry.nth] and entry.body ? 'frames'
    having count(*) > 0;
    return _held;
end
$$;

-- Stores one step of one turn at half the cost of record_journal. Returns whether the turn is held.
create or replace function agent.record_step(_id int8, _fence int8, _step jsonb) returns bool
language plpgsql security invoker
as $$
begin
    perform from agent.event where id = _id and fence = _fence and fence > 0 for no key update;
    if found then
        perform agent.put_step(_id, _step);
        return true;
    end if;
    return false;
end
$$;

-- A `started` that arrives late does not undo the end of the same attempt.
create or replace function agent.put_step(_id int8, _step jsonb) returns void
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    insert into agent.step as step
    ( event_id, key, kind, state, attempt, events, digest, error, signal, due_at, tokens, cost
    , started_at, ended_at, arguments, result )
    select _id, given.key, given.kind, given.state, given.attempt, given.events, given.digest
         , given.error, given.signal, given.due_at, given.tokens, given.cost
         , coalesce(given.started_at, _now)
         , coalesce(given.ended_at, case given.state when 'started' then null else _now end)
         , given.arguments, given.result
    from jsonb_to_record(_step) as given
      ( key text, kind text, state text, attempt int4, events int4, digest text, error text
      , signal text, due_at timestamptz, tokens int8, cost float8, started_at timestamptz
      , ended_at timestamptz, arguments text, result text )
    on conflict (event_id, key) do update
    set kind = excluded.kind, state = excluded.state, attempt = excluded.attempt
      , events = excluded.events, digest = coalesce(excluded.digest, step.digest)
      , error = excluded.error, signal = coalesce(excluded.signal, step.signal)
      , due_at = coalesce(excluded.due_at, step.due_at), tokens = excluded.tokens
      , cost = excluded.cost
      , started_at = case
          when excluded.attempt = step.attempt then least(excluded.started_at, step.started_at)
          else excluded.started_at end
      , ended_at = excluded.ended_at
      , arguments = coalesce(excluded.arguments, step.arguments), result = excluded.result
    where not (excluded.state = 'started' and step.state <> 'started'
        and excluded.attempt = step.attempt);
end
$$;

-- Stores the text, progress and preview of one entry. Parts that it lacks stay as they were.
create or replace function agent.write_journal(_entry jsonb) returns void
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _id int8 := _entry -> 'id';
    _write jsonb := _entry -> 'write';
    _generation int4 := _write -> 'generation';
    _length int4 := (_write -> 'offset')::int4 + (_write -> 'length')::int4;
begin
    if _write is not null then
        perform agent.write_text(_id, _generation, (_write -> 'offset')::int4, _write ->> 'text');
    end if;
    insert into agent.journal as journal
        (event_id, generation, length, progress, preview, updated_at)
    values (_id, coalesce(_generation, 0), coalesce(_length, 0), _entry ->> 'progress'
        , _entry -> 'preview', _now)
    on conflict (event_id) do update
    set generation = coalesce(_generation, journal.generation)
      , length = coalesce(_length, journal.length)
      , progress = coalesce(excluded.progress, journal.progress)
      , preview = coalesce(excluded.preview, journal.preview), updated_at = _now;
end
$$;

-- Stores a text in place of everything from an offset on, so that repeating a call changes nothing.
-- A greater generation replaces the whole text.
create or replace function agent.write_text
( _id int8, _generation int4, _offset int4, _text text ) returns void
language plpgsql security invoker
as $$
declare
    _kept agent.journal;
    _end int4;
begin
    select * into _kept from agent.journal where event_id = _id;
    _end := case when _kept.generation = _generation then _kept.length else 0 end;
    if _generation < coalesce(_kept.generation, 0) or _offset not between 0 and _end then
        raise invalid_parameter_value using message = format
        ( 'the text of event %s has %s characters in generation %s;'
          ' cannot write at %s of generation %s', _id, coalesce(_kept.length, 0)
        , coalesce(_kept.generation, 0), _offset, _generation );
    end if;
    if _offset < _kept.length then
        delete from agent.journal_text where event_id = _id and position >= _offset;
        update agent.journal_text as part set text = left(part.text, _offset - part.position)
        where part.event_id = _id and part.position =
            (select max(position) from agent.journal_text where event_id = _id);
    end if;
    if _text <> '' then
        insert into agent.journal_text (event_id, position, text) values (_id, _offset, _text);
    end if;
end
$$;

-- Returns false if the event is not live. An example: select agent.signal_event(17, 'paid', '3');
create or replace function agent.signal_event(_id int8, _name text, _value json default 'null')
returns bool
language plpgsql security invoker
as $$
begin
    -- Lock in the order of ids, as everywhere: resuming the turn changes its first event.
    if _id <> all (array
        ( select id from agent.event where id in (_id, agent.primary_of(_id))
          order by id for no key update ))
    then
        return false;
    end if;
    insert into agent.signal (event_id, name, value, created_at)
    values (_id, _name, _value::text, agent.now());
    perform agent.resume_signalled(_id);
    return true;
end
$$;

-- _step: as in record_journal, with `signal`, the name, and `ids`, the events of the turn. The
-- oldest signal of that name to one of them becomes its result; `value` is null if there is none.
create or replace function agent.take_signal
( _id int8, _fence int8, _step jsonb, out held bool, out value text )
language plpgsql security invoker
as $$
declare
    _ids int8[] := array(select jsonb_array_elements_text(_step -> 'ids'));
    _signal int8;
begin
    perform from agent.event where id = _id and fence = _fence and fence > 0 for no key update;
    held := found;
    if not held then
        return;
    end if;
    select signal.id, signal.value into _signal, value from agent.signal as signal
    where signal.event_id = any (_id || _ids) and signal.name = _step ->> 'signal'
      and signal.taken_by is null
    order by signal.id
    limit 1;
    if found then
        update agent.signal set taken_by = _step ->> 'key' where id = _signal;
        perform agent.put_step
            (_id, _step || jsonb_build_object('state', 'done', 'result', value));
    end if;
end
$$;

-- _id: an event of the turn; null resumes all turns. Returns their number.
create or replace function agent.resume_signalled(_id int8 default null) returns int4
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
    _ids int8[] := array
    ( select step.event_id
      from agent.signal as signal
      cross join lateral (select agent.primary_of(signal.event_id)) as turn (id)
      join agent.step as step on step.event_id = turn.id and step.signal = signal.name
      where signal.taken_by is null and (_id is null or signal.event_id = _id)
        and step.kind = 'signal' and step.state = 'started' );
    _resumed text[];
begin
    _ids := array
    ( select id from agent.event
      where id = any (_ids) and fence = 0 and vt > _now
      order by id for no key update );
    with resumed as
    ( update agent.event set vt = _now, updated_at = _now where id = any (_ids) returning queue )
    select array_agg(queue) into _resumed from resumed;
    perform agent.wake(_resumed);
    return cardinality(_ids);
end
$$;

create or replace function agent.blank_journals(_ids int8[]) returns void
language plpgsql security invoker
as $$
begin
    update agent.step set arguments = null, digest = null, result = null, error = null
    where event_id = any (_ids);
    update agent.journal set length = 0, progress = null, preview = null
    where event_id = any (_ids);
    delete from agent.journal_text where event_id = any (_ids);
    delete from agent.signal where event_id = any (_ids);
    update agent.attempt set error = null, error_class = null, traceback = null
    where event_id = any (_ids);
end
$$;

create or replace function agent.erase_journals(_ids int8[]) returns void
language plpgsql security invoker
as $$
begin
    delete from agent.step where event_id = any (_ids);
    delete from agent.journal where event_id = any (_ids);
    delete from agent.journal_text where event_id = any (_ids);
    delete from agent.signal where event_id = any (_ids);
    delete from agent.attempt where event_id = any (_ids);
end
$$;

-- _chunk: the name of a chunk of history, which may hold more ids than an array should.
create or replace function agent.erase_journals_of(_chunk text) returns void
language plpgsql security invoker
as $$
declare
    _table text;
begin
    foreach _table in array array['step', 'journal', 'journal_text', 'signal', 'attempt'] loop
        execute format('delete from agent.%I as kept using %s as gone
            where kept.event_id = gone.id', _table, _chunk);
    end loop;
end
$$;

-- A once-step that started has no result if its process died or its function raised. _assume: done
-- (its result is null then) or not-done (it runs again); null leaves it. Attempt 0 marks the
-- decision, which also counts for other arguments.
create or replace function agent.assume_effects(_ids int8[], _assume text) returns void
language plpgsql security invoker
as $$
begin
    if _assume = 'done' then
        update agent.step
        set state = 'done', attempt = 0, result = 'null', error = null, ended_at = agent.now()
        where event_id = any (_ids) and kind = 'once' and state in ('started', 'unknown');
    elsif _assume = 'not-done' then
        update agent.step set state = 'failed', attempt = 0, ended_at = agent.now()
        where event_id = any (_ids) and kind = 'once' and state in ('started', 'unknown');
    elsif _assume is not null then
        raise invalid_parameter_value using message = 'a call is assumed to be done or not-done';
    end if;
end
$$;

-- The tables are younger than the grants of most workers. So a role gets the rights that it has on
-- agent.event; otherwise its sweeps would fail.
do $$
declare
    _role text;
    _rights text;
begin
    for _role, _rights in
        select case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end
             , string_agg(distinct granted.privilege_type, ', ')
        from pg_catalog.pg_class as event
        cross join lateral pg_catalog.aclexplode(event.relacl) as granted
        where event.oid = 'agent.event'::regclass and granted.grantee <> event.relowner
          and granted.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        group by granted.grantee
    loop
        execute format('grant %s on agent.step, agent.journal, agent.journal_text, agent.signal
            to %s', _rights, _role);
        execute format('grant usage on sequence agent.step_id_seq, agent.signal_id_seq to %s'
            , _role);
    end loop;
end
$$;
