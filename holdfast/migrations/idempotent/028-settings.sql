-- Pins of all functions: search_path, and planner settings where a plan could go wrong. This script
-- is the last one, since `create or replace` removes the pins of a function.
--
-- search_path: a caller's own must not decide what a name in our functions means.
--
-- Planner settings. A `limit` that is a parameter makes the planner expect a tenth of the table and
-- sort it (22 claims/s instead of 480 at a backlog of 100,000). Statistics gathered while another
-- transaction fills the table, or after it was emptied, make it believe that the table is empty and
-- read all of it. So functions on the hot path read by index alone, whatever the statistics say,
-- with one generic plan. A plan with a disabled node looks expensive enough to trigger JIT, which
-- takes 40 ms for a claim of 1 ms; so jit is off wherever a node is disabled.

do $$
declare
    _function regprocedure;
    _names text[];
    _settings text;
    _setting text;
begin
    for _function in
        select oid from pg_catalog.pg_proc where pronamespace = 'agent'::regnamespace
    loop
        execute format('alter function %s set search_path = pg_catalog, pg_temp', _function);
    end loop;
    for _names, _settings in values
        -- Functions that read one index per table, in its order, from the front.
        ( array['promote', 'promote_lane', 'claim_turns', 'lock_ready', 'collect'
               , 'untried_behind', 'claimed_behind', 'claim_event', 'longest_waiting', 'next_due'
               , 'has_late', 'wake_late', 'place_activity', 'read_activity', 'activity_page'
               , 'headless_lanes']
        , 'enable_seqscan=off enable_bitmapscan=off enable_hashjoin=off enable_mergejoin=off'
          ' enable_sort=off jit=off plan_cache_mode=force_generic_plan' )
      , ( array['settle', 'settle_turns']
        , 'enable_seqscan=off enable_bitmapscan=off enable_hashjoin=off enable_mergejoin=off'
          ' jit=off plan_cache_mode=force_generic_plan' )
        -- Functions that read a few rows by key.
      , ( array['take_lanes', 'are_first', 'lock_limits', 'slots_left', 'gather', 'handed_on'
               , 'spent', 'checkpoint', 'emits', 'rename_emits', 'record_journal', 'record_step'
               , 'write_journal', 'write_text', 'primary_of', 'take_signal', 'resume_signalled'
               , 'keep_lines', 'erase_lines']
        , 'enable_seqscan=off enable_bitmapscan=off jit=off plan_cache_mode=force_generic_plan' )
        -- Functions that join arrays of ids with arrays of results. Both look short to the planner,
        -- and nested loops over two long ones take the square of their length. They are called by
        -- settle, which switches hash joins off, so hash joins are switched on again.
      , ( array['claim_heads', 'renew', 'finish', 'keep_tracebacks', 'keep_attempts', 'put_back'
               , 'decide_endings']
        , 'enable_seqscan=off enable_bitmapscan=off enable_hashjoin=on enable_nestloop=off'
          ' enable_mergejoin=off jit=off plan_cache_mode=force_generic_plan' )
      , ( array['keep_keys', 'keep_new_keys'], 'enable_nestloop=off jit=off' )
        -- The arguments that are not null decide the plan.
      , ( array['recent', 'finished'], 'plan_cache_mode=force_custom_plan' )
        -- A large put sorts its keys in memory.
      , ( array['put', 'store_all'], 'work_mem=64MB' )
    loop
        for _function, _setting in
            select oid, setting
            from pg_catalog.pg_proc, unnest(string_to_array(_settings, ' ')) as setting
            where pronamespace = 'agent'::regnamespace and proname = any (_names)
        loop
            execute format('alter function %s set %s to %L', _function
                , split_part(_setting, '=', 1), split_part(_setting, '=', 2));
        end loop;
    end loop;
end
$$;

-- Restores the grants that the first script noted, to functions created since.
do $$
declare
    _grants jsonb := coalesce(nullif(current_setting('holdfast.grants', true), ''), '[]');
    _function regprocedure;
    _roles text[];
begin
    for _function, _roles in
        select created.oid, noted.roles
        from jsonb_to_recordset(_grants) as noted (name text, roles text[])
        join pg_catalog.pg_proc as created on created.proname = noted.name
        where created.pronamespace = 'agent'::regnamespace
          and created.oid not in
          ( select oid from jsonb_to_recordset(_grants) as kept (oid oid) )
    loop
        execute format('revoke all on function %s from public', _function);
        execute format('grant execute on function %s to %s', _function
            , array_to_string(_roles, ', '));
    end loop;
end
$$;
