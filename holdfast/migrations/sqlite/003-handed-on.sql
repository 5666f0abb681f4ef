-- How many messages came of one is asked for every message that an agent hands on; others are not in these indexes.
create index event_handed_on on event (root_id) where queue = 'inbox' and hops > 0;
create index event_hist_handed_on on event_hist (root_id) where queue = 'inbox' and hops > 0;
