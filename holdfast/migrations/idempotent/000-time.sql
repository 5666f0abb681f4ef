-- Slack time (seconds since 1970 with six decimals) to timestamptz and back, without losing a microsecond.

create or replace function agent.to_timestamptz(_ts numeric) returns timestamptz
language plpgsql immutable strict security invoker parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    -- Whole microseconds survive the multiplication by a float exactly up to 2^53, which is the year 2255;
    -- seconds and the rest apart keep it exact beyond.
    return timestamptz 'epoch'
        + floor(_ts)::float8 * interval '1 second'
        + round((_ts - floor(_ts)) * 1000000)::float8 * interval '1 microsecond';
end
$$;

create or replace function agent.to_timestamptz(_ts text) returns timestamptz
language plpgsql immutable strict security invoker parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    return agent.to_timestamptz(_ts::numeric);
end
$$;

create or replace function agent.from_timestamptz(_ts timestamptz) returns numeric
language plpgsql immutable strict security invoker parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    return extract(epoch from _ts);
end
$$;

-- The time of a platform, null where it says none.
create or replace function agent.platform_time(_ts text) returns timestamptz
language plpgsql stable security invoker parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    return case when _ts ~ '^\s*\d{1,12}(\.\d{0,20})?\s*$' then agent.to_timestamptz(_ts) end;
end
$$;

-- The moment as every client can read it: one outside of the checks on agent.event becomes the nearest one inside.
create or replace function agent.readable_moment(_at timestamptz) returns timestamptz
language sql immutable strict security invoker parallel safe
set search_path = pg_catalog, pg_temp
return greatest('0001-01-02Z'::timestamptz, least('9999-12-30Z'::timestamptz, _at));

create or replace function agent.readable_moments(_moments timestamptz[]) returns timestamptz[]
language sql immutable strict security invoker parallel safe
set search_path = pg_catalog, pg_temp
return array(select agent.readable_moment(at) from unnest(_moments) as at where at is not null);
