-- Shared settings, limits of targets, and default agents of conversations.

-- name: setting
select value from setting where key = :key;

-- name: set_setting
insert into setting (key, value) values (:key, :value)
on conflict (key) do update set value = excluded.value;

-- name: remove_setting
delete from setting where key = :key;

-- name: mark_choice_used
update setting set value = json_remove(value, '$.unused_since') where key = :key;

-- name: mark_choices_unused
update setting set value = json_set(value, '$.unused_since', :now)
where key >= 'default/' and key < 'default0' and json_type(value, '$.unused_since') is null;

-- name: prune_choices
delete from setting
where key in (
  select key
  from (
    select
      key, unused_since,
      row_number() over (partition by channel order by unused_since desc, key) as position
    from (
      select
        key, unused_since,
        iif(channel in (select value from json_each(:channels)), channel, '') as channel
      from (
        select key, json_extract(value, '$.unused_since') as unused_since,
          substr(key, 9, instr(substr(key, 9) || ':', ':') - 1) as channel
        from setting
        where key >= 'default/' and key < 'default0'
      )
    )
  )
  where unused_since <= :before or position > :most
);

-- name: set_limit
insert into target_limit (queue, target, running) values (:queue, :target, :running)
on conflict (queue, target) do update set running = excluded.running;

-- name: lift_limit
delete from target_limit where queue = :queue and target = :target;
