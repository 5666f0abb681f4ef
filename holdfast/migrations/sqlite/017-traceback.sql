-- Where the last attempt of an event failed; redacted and bounded by the process that settled it.
alter table event add column traceback text;
alter table event_hist add column traceback text;
