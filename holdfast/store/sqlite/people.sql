-- People who are known under several identities.

-- name: person_of_subject
select person from person_link where subject = :subject;

-- name: link_subject
insert into person_link (subject, person, linked_at) values (:subject, :person, :now)
on conflict (subject) do nothing;

-- name: join_people
update person_link set person = :person where person = :other;

-- name: unlink_subject
delete from person_link where subject = :subject returning person;

-- name: unlink_last
-- whoever is left alone is in no list any more
delete from person_link
where person = :person and (select count(*) from person_link where person = :person) = 1;

-- name: linked_subjects
select other.subject
from person_link as own
join person_link as other on other.person = own.person
where own.subject = :subject and other.subject <> :subject
order by other.subject;

-- name: person_links
select person, subject from person_link order by person, subject;

-- name: known_as
select subject
from (
  select subject from agent_message
  union
  select subject from chat_message
  union
  select subject from person_link
  union
  select workspace_id || ':' || subject_type || ':' || subject_id from observation
  union
  select subject_of(event) from event where queue in ('inbox', 'outbox')
  union
  select subject_of(event) from event_hist where queue in ('inbox', 'outbox')
)
where is_person(subject, :key)
order by subject;
