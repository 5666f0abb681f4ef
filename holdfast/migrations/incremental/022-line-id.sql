-- The line of a message in its agent's history has the id of its event, plus an offset. So a
-- waiting message has its line, id included, before anybody works it. The offset is the greatest
-- id of the lines of earlier releases, which keep theirs.
lock table agent.agent_message in access exclusive mode;

alter table agent.agent_message alter column id drop identity;

insert into agent.setting (key, value)
select 'line_offset', to_jsonb(coalesce(max(id), 0)) from agent.agent_message;

-- For lines without an event. Workers of an earlier release name no id.
do $$
begin
    execute format('alter table agent.agent_message alter column id'
        ' set default nextval(''agent.event_id_seq'') + %s'
        , (select value from agent.setting where key = 'line_offset'));
end
$$;
