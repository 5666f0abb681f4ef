-- People with several identities.
--
--   link_people      makes two identities one person, with all identities linked to either of them
--   unlink_person    makes an identity a person of its own again
--   linked_subjects  all identities of a person
--   known_as         the identities that match a subject

-- Returns false if they were linked before.
create or replace function agent.link_people(_one text, _other text) returns bool
language plpgsql security invoker
as $$
declare
    _first uuid;
    _second uuid;
begin
    -- Without the lock, two concurrent calls could make two groups of one person.
    lock table agent.person_link in share row exclusive mode;
    select person into _first from agent.person_link where subject = _one;
    select person into _second from agent.person_link where subject = _other;
    if _first = _second then
        return false;
    end if;
    _first := coalesce(_first, gen_random_uuid());
    update agent.person_link set person = _first where person = _second;
    insert into agent.person_link (subject, person) values (_one, _first), (_other, _first)
    on conflict do nothing;
    return true;
end
$$;

-- Returns whether it was linked. If only one other identity is left, that is unlinked, too.
create or replace function agent.unlink_person(_subject text) returns bool
language plpgsql security invoker
as $$
declare
    _person uuid;
begin
    lock table agent.person_link in share row exclusive mode;
    delete from agent.person_link where subject = _subject returning person into _person;
    if not found then
        return false;
    end if;
    delete from agent.person_link
    where person = _person and (select count(*) from agent.person_link where person = _person) = 1;
    return true;
end
$$;

-- All identities of a person, the given one first.
create or replace function agent.linked_subjects(_subject text) returns setof text
language plpgsql stable security invoker
as $$
begin
    return next _subject;
    return query
    select other.subject::text
    from agent.person_link as own
    join agent.person_link as other on other.person = own.person
    where own.subject = _subject and other.subject <> _subject
    order by other.subject;
end
$$;

-- The identities that match a key, as far as stored rows show them.
create or replace function agent.known_as(_key text) returns setof text
language sql stable security invoker
as $$
    select subject
    from
    ( select subject from agent.agent_message
      union
      select subject from agent.chat_message
      union
      select subject from agent.person_link
      union
      select subject from agent.pairing
      union
      select agent.subject_key(workspace_id, subject_type, subject_id) from agent.observation
      union
      select agent.subject_of(event) from agent.event where queue in ('inbox', 'outbox')
      union
      select agent.subject_of(event) from agent.event_hist where queue in ('inbox', 'outbox')
    ) as known (subject)
    where agent.is_person(subject, _key)
    order by subject collate "C"
$$;
