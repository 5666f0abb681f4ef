-- The result of routing a message; `event` stays as the platform sent it. Rows of release 0.4.0 hold both in `event`.
alter table agent.event add column routed_text text;
alter table agent.event add column routed_team text;
alter table agent.event_hist add column routed_text text;
alter table agent.event_hist add column routed_team text;
