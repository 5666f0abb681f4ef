-- Which token or person sent a message; what comes of it inherits it. Null: a bootstrap token, or a channel.
alter table event add column sent_by text;
alter table event_hist add column sent_by text;

-- A token of role send lists its own events alone. Events without a sender are in neither index.
create index event_sent_by on event (sent_by, queue) where sent_by is not null;
create index event_hist_sent_by on event_hist (sent_by, queue) where sent_by is not null;
