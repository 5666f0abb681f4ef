-- Where the last attempt of an event failed; redacted and bounded by the process that settled it.
alter table agent.event add column traceback text;
alter table agent.event_hist add column traceback text;
