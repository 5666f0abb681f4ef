-- How one event of a settled turn ends: what agent.settle passes between its steps. Functions of
-- release 0.4.0 that still run during the migration use agent.verdict, which therefore stays.
create type agent.ending as
( turn int8
, id int8
, ended text
, error text
, error_class text
, delay interval
, unused int4
, state jsonb
, queue text
, lane text
);
