-- What happened, for whoever watches. A row holds the frames of one call and is written in its transaction, so that it
-- is there if, and only if, what it tells of is.

-- Ids are drawn before the commit, so a reader that follows them would skip what commits late. A place is given to
-- rows that are committed, by one at a time: what has one comes before all that will ever get one.
create table agent.activity
( id int8 not null generated always as identity
, place int8
, frames json not null
, created_at timestamptz not null default agent.now()
);

create unique index activity_place on agent.activity (place) where place is not null;
create index activity_unplaced on agent.activity (id) where place is null;

-- Every row is updated once, soon after it came.
alter table agent.activity set
( autovacuum_vacuum_scale_factor = 0.02
, autovacuum_vacuum_threshold = 1000
, autovacuum_vacuum_cost_delay = 0
);

-- The last place given; whoever gives places holds this row.
create table agent.activity_end
( one bool not null default true primary key check (one)
, place int8 not null
);

insert into agent.activity_end (place) values (0);
