-- Records who may call each function. A function whose arguments or result changed is dropped and
-- created again, which loses its grants; the last script restores them from this record.
select pg_catalog.set_config('holdfast.grants', coalesce(jsonb_agg(jsonb_build_object
    ( 'oid', oid, 'name', proname
    , 'roles', array
        ( select case grantee when 0 then 'public' else grantee::regrole::text end
          from aclexplode(proacl)
          where privilege_type = 'EXECUTE' )))::text, '[]'), true)
from pg_catalog.pg_proc
where pronamespace = 'agent'::regnamespace and proacl is not null;
