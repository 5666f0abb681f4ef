-- The only clock in SQL: the time of the statement, unless the setting holdfast.now says otherwise (tests).
-- Stable, so that a comparison with it can use an index.
create function agent.now() returns timestamptz
language plpgsql stable security invoker parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(nullif(current_setting('holdfast.now', true), '')::timestamptz, statement_timestamp());
end
$$;
