-- What the metrics ask the server.

-- Age of the oldest transaction whose snapshot keeps dead rows in our tables; null where there is none. Those of
-- other users are seen with the rights of pg_read_all_stats alone.
create or replace function agent.oldest_snapshot() returns interval
language plpgsql stable security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    return
    ( select max(clock_timestamp() - held.since)
      from
      ( select activity.xact_start as since
        from pg_stat_activity as activity
        where (activity.backend_xmin is not null or activity.backend_xid is not null)
          and activity.pid <> pg_backend_pid()
          -- A vacuum's own snapshot holds nobody up, nor does one in another database.
          and activity.backend_type <> 'autovacuum worker'
          and (activity.datname = current_database() or activity.datname is null)
        union all
        select prepared.prepared
        from pg_prepared_xacts as prepared
        where prepared.database = current_database()
      ) as held
    );
end
$$;
