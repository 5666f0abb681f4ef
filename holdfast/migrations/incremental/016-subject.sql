-- All that is kept of a message names the person behind it, so that forgetting finds it when the event is long gone.
-- Rows of earlier releases have '', and forgetting says how many they are.
alter table agent.agent_message add column subject text not null default '';
alter table agent.chat_message add column subject text not null default '';
-- Copies of a line that members of the room get carry this key.
alter table agent.chat_message add column key text not null default '';
