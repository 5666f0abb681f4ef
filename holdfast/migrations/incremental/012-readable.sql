-- Rows that a client could not read are refused: moments outside of what programs can hold, negative numbers, lists of
-- claims that are none. Not validated here, which would hold the table's lock for a look at every row: the migration
-- does it afterwards (agent.validate_checks).
alter table agent.event
    add constraint event_moments_readable check
    ( event_ts >= '0001-01-02Z' and event_ts < '9999-12-31Z' and vt >= '0001-01-02Z' and vt < '9999-12-31Z'
      and created_at >= '0001-01-02Z' and created_at < '9999-12-31Z'
      and updated_at >= '0001-01-02Z' and updated_at < '9999-12-31Z'
    ) not valid
  , add constraint event_claimed_readable check
    ( case when coalesce(array_ndims(claimed), 1) = 1
        then array_position(claimed, null) is null and '0001-01-02Z' <= all (claimed) and '9999-12-31Z' > all (claimed)
        else false
      end
    ) not valid
  , add constraint event_numbers_readable check
    ( attempts >= 0 and fence >= 0 and hops between 0 and 1000000 ) not valid;
