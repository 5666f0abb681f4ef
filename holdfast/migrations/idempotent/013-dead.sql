-- Finished events that a person brings back or gives up.
--
--   retry_event    makes a dead letter live again, with its id and all of its attempts; `claimed`
--                  keeps the record of earlier claims
--   discard_event  erases payload and error of a dead letter
--   replay_event   stores a copy of a finished event as a new event

-- A further argument would make a second function of the name.
drop function if exists agent.retry_events(int8[]);
drop function if exists agent.retry_event(int8);

-- _assume: whether the calls that may have happened are to count as `done` or `not-done`. Without
-- it, dead letters of the class EffectUnknown are left out.
create or replace function agent.retry_events(_ids int8[], _assume text default null)
returns setof int8
language plpgsql security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    with gone as
    ( delete from agent.event_hist
      where id = any (_ids) and outcome = any (agent.dead_outcomes())
        and (_assume is not null or error_class is distinct from 'EffectUnknown')
      returning *
    )
    , key as
    ( insert into agent.message_key (queue, message_id, event_id, parent_id, seen_at)
      select queue, message_id, id, parent_id, _now from gone where message_id is not null
      order by queue, message_id
      on conflict do nothing
    )
    , revived as
    ( insert into agent.event
      ( id, event_ts, attempts, vt, claimed, event, queue, target, lane, message_id, max_attempts
      , parent_id, root_id, hops, state, last_error, error_class, created_at, updated_at, sent_by
      , routed_text, routed_team )
      select id, agent.readable_moment(event_ts), 0, _now, agent.readable_moments(claimed), event
           , queue, target, lane, message_id, max_attempts, parent_id, root_id, hops, state
           , last_error, error_class, agent.readable_moment(created_at), _now, sent_by, routed_text
           , routed_team
      from gone
      order by gone.id
      returning agent.event.id
    )
    select array_agg(revived.id) into _ids from revived;
    perform agent.assume_effects(_ids, _assume), agent.erase_lines(_ids);
    perform agent.report_received(_ids);
    return query select unnest(_ids);
end
$$;

create or replace function agent.retry_event(_id int8, _assume text default null) returns int8
language plpgsql security invoker
as $$
begin
    return (select min(id) from agent.retry_events(array[_id], _assume) as id);
end
$$;

create or replace function agent.discard_events(_ids int8[]) returns setof int8
language plpgsql security invoker
as $$
begin
    with discarded as
    ( update agent.event_hist
      set event = '{}', routed_text = null, routed_team = null, last_error = null
        , error_class = null, traceback = null, state = null, outcome = 'discarded'
        , updated_at = agent.now()
      where id = any (_ids) and outcome = any (agent.dead_outcomes())
      returning agent.event_hist.id
    )
    select array_agg(id) into _ids from discarded;
    perform agent.blank_journals(_ids), agent.erase_lines(_ids);
    return query select unnest(_ids);
end
$$;

create or replace function agent.discard_event(_id int8) returns int8
language plpgsql security invoker
as $$
begin
    return (select min(id) from agent.discard_events(array[_id]) as id);
end
$$;

create or replace function agent.replay_event(_id int8) returns int8
language plpgsql security invoker
as $$
declare
    _new int8 := nextval('agent.event_id_seq');
begin
    insert into agent.event
    ( id, event_ts, event, queue, target, lane, message_id, max_attempts, root_id, sent_by
    , routed_text, routed_team )
    select _new, agent.readable_moment(event_ts), event, queue, target, lane
         , message_id || '~' || _new, max_attempts, _new, sent_by, routed_text, routed_team
    from agent.event_hist
    where id = _id and outcome <> 'discarded'
    limit 1;
    if not found then
        return null;
    end if;
    insert into agent.message_key (queue, message_id, event_id, seen_at)
    select queue, message_id, id, created_at from agent.event
    where id = _new and message_id is not null;
    perform agent.report_received(array[_new]);
    return _new;
end
$$;
