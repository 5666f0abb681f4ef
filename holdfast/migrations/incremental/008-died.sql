-- Dead letters by when they died: whoever asked is told of each, however many die at once.
create index event_hist_died on agent.event_hist (queue, finished_at, id) where outcome in ('dead', 'expired', 'cancelled');
