-- Views with the classical columns, and functions that list events.
--
--   messages, responses, mem_outbox, agent_messages, chat_messages  the views
--   message_line  messages as lines of their agents' histories; keep_lines stores such lines, and
--                 erase_lines removes them
--   counts    live events by queue and target
--   leased    events that are being worked
--   recent    live and finished events of a queue
--   finished  history by filters; died  dead letters in the order of their deaths

create or replace view agent.messages as
with known as
( select id, message_id, target, event, attempts, last_error, created_at, updated_at
       , case when fence > 0 and vt > agent.now() then 'processing' else 'pending' end as status
  from agent.event
  where queue = 'inbox'
  union all
  select id, message_id, target, event, attempts, last_error, created_at, updated_at
       , case when outcome = 'completed' then 'completed' else 'dead' end
  from agent.event_hist
  where queue = 'inbox' and outcome <> 'discarded'
)
select id
     , message_id
     , read.channel
     , read.sender
     , read.sender_id
     , read.text as message
     , nullif(target, '') as agent
     , event ->> 'from_agent' as from_agent
     , status
     -- A running or successful attempt did not fail.
     , attempts - (status in ('processing', 'completed') and attempts > 0)::int4 as retry_count
     , last_error
     , created_at
     , updated_at
from known
cross join lateral agent.read_message(event) as read;

create or replace view agent.responses as
with known as
( select id, event, created_at, 'pending' as status, null::timestamptz as acked_at
  from agent.event
  where queue = 'outbox'
  union all
  select id, event, created_at, case when outcome = 'completed' then 'acked' else 'dead' end
       , case when outcome = 'completed' then finished_at end
  from agent.event_hist
  where queue = 'outbox' and outcome <> 'discarded'
)
select id
     , event ->> 'message_id' as message_id
     , event ->> 'channel' as channel
     , event ->> 'sender' as sender
     , event ->> 'sender_id' as sender_id
     , event ->> 'message' as message
     , event ->> 'original_message' as original_message
     , event ->> 'agent' as agent
     , event -> 'files' as files
     , event -> 'metadata' as metadata
     , status
     , created_at
     , acked_at
from known;

create or replace view agent.mem_outbox as
with known as
( select id, event
       -- A running attempt did not fail.
       , case when fence > 0 and vt > agent.now() then greatest(attempts - 1, 0) else attempts
         end as attempt_count
       , last_error, created_at, vt
       , case when fence > 0 and vt > agent.now() then coalesce(holder, '') end as claimed_by
       , case when fence > 0 and vt > agent.now() then vt end as claimed_until
  from agent.event
  where queue = 'memory'
  union all
  select id, event, attempts, last_error, created_at, vt, 'POISON', '9999-12-31T00:00:00Z'
  from agent.event_hist
  where queue = 'memory' and outcome = any (agent.dead_outcomes())
)
select id
     , event ->> 'workspace_id' as workspace_id
     , event ->> 'observation_local_id' as observation_local_id
     , event ->> 'subject_key' as subject_key
     , event ->> 'operation' as operation
     , attempt_count
     , last_error
     , created_at
     , vt as next_attempt_at
     , claimed_by
     , claimed_until
from known;

-- Live messages and dead letters as lines of their agents' histories. A live message has no other
-- line; the lines of dead and completed ones are stored in agent.agent_message, under the same id.
create or replace view agent.message_line as
with known as
( select id, target, message_id, event, created_at, true as is_live
  from agent.event
  where queue = 'inbox'
  union all
  select id, target, message_id, event, created_at, false
  from agent.event_hist
  where queue = 'inbox' and outcome = any (agent.dead_outcomes())
)
select known.id + (select agent.line_offset()) as id
     , coalesce(nullif(target, '')
         , (select value ->> 'default' from agent.setting where key = 'routing'), '') as agent_id
     , 'user' as role
     , coalesce(read.channel, '') as channel
     , coalesce(read.sender, '') as sender
     , coalesce(message_id, known.id::text) as message_id
     , coalesce(read.text, '') as content
     , coalesce(read.conversation, '') as conversation
     , read.subject
     , agent.readable_moment(created_at) as created_at
     , known.id as event_id
     , is_live
     , coalesce(event ->> 'origin_id', '') as origin
from known
cross join lateral agent.read_message(event) as read;

-- A view cannot change the collation of a column, and dropping it would drop views of users that
-- build on it. Databases that began with 0.7.0 have "C" here, all others the default.
do $do$
declare
    _collation text := coalesce
        ( ( select attcollation::regcollation::text from pg_attribute
            where attrelid = to_regclass('agent.agent_messages') and attname = 'agent_id' )
        , 'pg_catalog."default"' );
begin
    execute format($q$
        create or replace view agent.agent_messages as
        select id, agent_id collate %1$s as agent_id, role, channel, sender
             , message_id collate %1$s as message_id, content, created_at
        from agent.agent_message
        union all
        select id, agent_id collate %1$s, role, channel, sender, message_id collate %1$s, content
             , created_at
        from agent.message_line
        where is_live$q$, _collation);
end
$do$;

-- Stores the lines of live messages that are about to end, or of dead letters.
create or replace function agent.keep_lines(_ids int8[], _live bool default true) returns void
language plpgsql security invoker
as $$
begin
    insert into agent.agent_message
    ( id, agent_id, role, channel, sender, message_id, content, conversation, subject, created_at
    , origin )
    select id, agent_id, role, channel, sender, message_id, content, conversation, subject
         , created_at, origin
    from agent.message_line
    where event_id = any (_ids) and is_live = _live
    on conflict (id) do nothing;
end
$$;

-- Removes the stored lines of dead letters that were discarded, or revived: a live message is its
-- own line.
create or replace function agent.erase_lines(_ids int8[]) returns void
language plpgsql security invoker
as $$
declare
    _offset int8 := agent.line_offset();
begin
    delete from agent.agent_message
    where id = any (array(select event_id + _offset from unnest(_ids) as event_id));
end
$$;

-- Stores the lines of older dead letters, which earlier releases did not store.
select agent.keep_lines(array
( select id from agent.event_hist
  where queue = 'inbox' and outcome = any (agent.dead_outcomes())
    and not exists
    ( select from agent.agent_message as line where line.id = event_hist.id + agent.line_offset() )
), false);

create or replace view agent.chat_messages as
select id, team_id, from_agent, message, created_at from agent.chat_message;

-- The columns of a result cannot be replaced, so a function of an earlier release is dropped.
do $$
begin
    if not exists
    ( select from pg_catalog.pg_proc
      where oid = to_regprocedure('agent.counts()') and 'pending_since' = any (proargnames) ) then
        drop function if exists agent.counts();
    end if;
end
$$;

-- Live events by queue and target: ready, delayed, queued (behind another of its lane) and leased.
create or replace function agent.counts() returns table
( queue text
, target text
, ready int8
, delayed int8
, queued int8
, leased int8
, ready_since timestamptz
, pending_since timestamptz
)
language plpgsql stable security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    return query
    select event.queue, event.target
         , count(*) filter (where event.head and event.vt <= _now)
         , count(*) filter (where event.head and event.vt > _now and event.fence = 0)
         , count(*) filter (where not event.head and not (event.fence > 0 and event.vt > _now))
         , count(*) filter (where event.fence > 0 and event.vt > _now)
         , min(event.vt) filter (where event.head and event.vt <= _now)
         , min(event.created_at)
    from agent.event as event
    group by event.queue, event.target
    order by event.queue, event.target;
end
$$;

create or replace function agent.leased(_queue text) returns setof agent.event
language plpgsql stable security invoker
as $$
declare
    _now timestamptz := agent.now();
begin
    return query
    select * from agent.event as event
    where event.queue = _queue and event.attempts > 0 and event.fence > 0 and event.vt > _now
    order by event.id;
end
$$;

-- Newest first.
create or replace function agent.recent
( _queue text
, _limit int4
, _before_id int8 default null
, _since_id int8 default null
) returns setof agent.event
language plpgsql stable security invoker
as $$
begin
    return query
    ( select * from agent.event as event
      where event.queue = _queue
        and (_before_id is null or event.id < _before_id)
        and (_since_id is null or event.id > _since_id)
      order by event.id desc
      limit _limit )
    union all
    ( select id, event_ts, attempts, vt, claimed, event, queue, target, lane, head, fence, holder
           , message_id, max_attempts, parent_id, root_id, hops, state, last_error, error_class
           , created_at, updated_at, sent_by, traceback, routed_text, routed_team
      from agent.event_hist as hist
      where hist.queue = _queue and hist.outcome <> 'discarded'
        and (_before_id is null or hist.id < _before_id)
        and (_since_id is null or hist.id > _since_id)
      order by hist.id desc
      limit _limit )
    order by 1 desc
    limit _limit;
end
$$;

-- History by id, queue, target, outcome and a part of the error, newest first. Dead letters have an
-- index of their own.
create or replace function agent.finished
( _ids int8[] default null
, _queue text default null
, _target text default null
, _outcomes text[] default null
, _error text default null
, _limit int4 default null
, _before_id int8 default null
, _since_id int8 default null
) returns setof agent.event_hist
language plpgsql stable security invoker
as $$
begin
    return query
    select *
    from agent.event_hist as hist
    where (_ids is null or hist.id = any (_ids))
      and (_queue is null or hist.queue = _queue)
      and (_target is null or hist.target = _target)
      and (_outcomes is null or hist.outcome = any (_outcomes))
      and (_error is null or strpos(lower(hist.last_error), lower(_error)) > 0)
      and (_before_id is null or hist.id < _before_id)
      and (_since_id is null or hist.id > _since_id)
    order by hist.id desc
    limit _limit;
end
$$;

create or replace function agent.died(_queue text, _after timestamptz, _after_id int8, _limit int4)
returns setof agent.event_hist
language sql stable security invoker
as $$
    select *
    from agent.event_hist
    where queue = _queue and (finished_at, id) > (_after, _after_id)
      and outcome = any (agent.dead_outcomes())
    order by finished_at, id
    limit _limit
$$;
