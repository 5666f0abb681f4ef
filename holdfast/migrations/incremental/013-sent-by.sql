-- Which token or person sent a message; what comes of it inherits it. Null: a bootstrap token, or a channel.
alter table agent.event add column sent_by text collate "C";
alter table agent.event_hist add column sent_by text collate "C";

-- A token of role send lists its own events alone. Events without a sender are in neither index.
create index event_sent_by on agent.event (sent_by, queue, id) where sent_by is not null;
create index event_hist_sent_by on agent.event_hist (sent_by, queue, id) where sent_by is not null;
