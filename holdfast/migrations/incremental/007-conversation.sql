-- An agent's history can be told apart by conversation: a language model is reminded of one of them alone.
alter table agent.agent_message add column conversation text not null default '';

create index agent_message_conversation on agent.agent_message (agent_id, conversation, id);
