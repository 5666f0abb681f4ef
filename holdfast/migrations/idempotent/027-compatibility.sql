-- Functions that workers of earlier releases call while this release migrates and afterwards.
--
-- A function must not be dropped while a worker may call it: the call fails with "cache lookup
-- failed". Nor may a second function of its name have further parameters with defaults: a short
-- call would be ambiguous. So further parameters went to functions of another name, and these
-- forward to them. Databases of release 0.4.0 have the short signatures, those of the first builds
-- of 0.5.0 the long ones; each keeps its own.
do $$
begin
    if to_regprocedure
       ('agent.claim(text, text[], int4, interval, text, int4, int4, int4[])') is null then
        create or replace function agent.claim
        ( _queue text
        , _targets text[]
        , _limit int4
        , _lease interval
        , _holder text default null
        , _collect_limit int4 default 1
        , _max_attempts int4 default 3
        ) returns setof agent.event
        language plpgsql security invoker
        as $function$
        begin
            return query select * from agent.claim_turns
                (_queue, _targets, _limit, _lease, _holder, _collect_limit, _max_attempts);
        end
        $function$;
    else
        create or replace function agent.claim
        ( _queue text
        , _targets text[]
        , _limit int4
        , _lease interval
        , _holder text default null
        , _collect_limit int4 default 1
        , _max_attempts int4 default 3
        , _at_most int4[] default null
        ) returns setof agent.event
        language plpgsql security invoker
        as $function$
        begin
            return query select * from agent.claim_turns
                ( _queue, _targets, _limit, _lease, _holder, _collect_limit, _max_attempts
                , _at_most );
        end
        $function$;
    end if;
end
$$;

do $$
begin
    if to_regprocedure('agent.say(text, text, text, text, text)') is null then
        create or replace function agent.say(_team_id text, _from_agent text, _message text)
        returns int8
        language plpgsql security invoker
        as $function$
        begin
            return agent.add_chat_message(_team_id, _from_agent, _message);
        end
        $function$;
    else
        create or replace function agent.say
        ( _team_id text
        , _from_agent text
        , _message text
        , _subject text default ''
        , _key text default ''
        ) returns int8
        language plpgsql security invoker
        as $function$
        begin
            return agent.add_chat_message(_team_id, _from_agent, _message, _subject, _key);
        end
        $function$;
    end if;
end
$$;

do $$
begin
    if to_regprocedure('agent.register_process(text, text, timestamptz, jsonb)') is null then
        create or replace function agent.register_process
        ( _id text, _host text, _started_at timestamptz ) returns bool
        language plpgsql security invoker
        as $function$
        begin
            return agent.start_process(_id, _host, _started_at);
        end
        $function$;
    else
        create or replace function agent.register_process
        ( _id text, _host text, _started_at timestamptz, _serves jsonb default null ) returns bool
        language plpgsql security invoker
        as $function$
        begin
            return agent.start_process(_id, _host, _started_at, _serves);
        end
        $function$;
    end if;
end
$$;

-- Earlier releases gave the lanes of all queues their head at once; it reads the whole live table.
create or replace function agent.mend_lanes() returns int4
language plpgsql security invoker
as $$
declare
    _queues text[];
    _lanes text[];
    _promoted text[];
begin
    select array_agg(queue), array_agg(lane) into _queues, _lanes
    from
    ( select queue, lane from agent.event where lane is not null
      except
      select queue, lane from agent.event where lane is not null and head
    ) as headless;
    if _queues is null then
        return 0;
    end if;
    perform agent.lock_lanes(agent.lane_buckets(_queues, _lanes));
    _promoted := agent.promote(_queues, _lanes);
    perform agent.wake(_promoted);
    return cardinality(_promoted);
end
$$;
