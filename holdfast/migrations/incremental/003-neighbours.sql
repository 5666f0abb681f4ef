-- What lives beside the events.

-- How many turns of a target may run at once, over all processes. No row: no limit.
create table agent.target_limit
( queue text not null
, target text not null
, running int4 not null check (running >= 0)
, primary key (queue, target)
);

-- Values that processes and SQL callers share; 'routing' holds the default agent and lane policies.
create table agent.setting
( key text not null primary key
, value jsonb not null
);

create table agent.process
( id text not null primary key
, host text not null
, started_at timestamptz not null
, seen_at timestamptz not null
, last_wake_reason text
, turns int4 not null default 0
);

create table agent.agent_message
( id int8 not null generated always as identity primary key
, agent_id text not null
, role text not null check (role in ('user', 'assistant'))
, channel text not null
, sender text not null
, message_id text not null
, content text not null
, created_at timestamptz not null default agent.now()
);

create index agent_message_agent on agent.agent_message (agent_id, id);

create table agent.chat_message
( id int8 not null generated always as identity primary key
, team_id text not null
, from_agent text not null
, message text not null
, created_at timestamptz not null default agent.now()
);

create index chat_message_team on agent.chat_message (team_id, id);

-- How one event of a settled turn ends: what agent.settle passes between its steps.
create type agent.verdict as
( turn int8
, id int8
, ended text
, error text
, error_class text
, delay interval
, unused int4
, state jsonb
, queue text
, lane text
);
