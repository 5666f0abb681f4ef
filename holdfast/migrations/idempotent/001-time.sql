-- Times. Slack's are seconds since 1970 with six decimals; no microsecond is lost on the way to
-- timestamptz and back.

create or replace function agent.to_timestamptz(_ts numeric) returns timestamptz
language plpgsql immutable strict security invoker parallel safe
as $$
begin
    -- Multiplying whole microseconds by a float is exact up to 2^53, in the year 2255. Seconds and
    -- fraction are converted separately to stay exact beyond it.
    return timestamptz 'epoch'
        + floor(_ts)::float8 * interval '1 second'
        + round((_ts - floor(_ts)) * 1000000)::float8 * interval '1 microsecond';
end
$$;

create or replace function agent.to_timestamptz(_ts text) returns timestamptz
language plpgsql immutable strict security invoker parallel safe
as $$
begin
    return agent.to_timestamptz(_ts::numeric);
end
$$;

create or replace function agent.from_timestamptz(_ts timestamptz) returns numeric
language plpgsql immutable strict security invoker parallel safe
as $$
begin
    return extract(epoch from _ts);
end
$$;

-- The time that a platform sent, null if the text is not a time.
create or replace function agent.platform_time(_ts text) returns timestamptz
language plpgsql stable security invoker parallel safe
as $$
begin
    return case when _ts ~ '^\s*\d{1,12}(\.\d{0,20})?\s*$' then agent.to_timestamptz(_ts::numeric)
        end;
end
$$;

-- The nearest time that satisfies the checks on agent.event, so that every client can read it.
create or replace function agent.readable_moment(_at timestamptz) returns timestamptz
language sql immutable strict security invoker parallel safe
return greatest('0001-01-02Z'::timestamptz, least('9999-12-30Z'::timestamptz, _at));

create or replace function agent.readable_moments(_moments timestamptz[]) returns timestamptz[]
language sql immutable strict security invoker parallel safe
return array(select agent.readable_moment(at) from unnest(_moments) as at where at is not null);
