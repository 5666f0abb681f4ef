-- Conversations that were begun by HTTP, so that a page can list them on any browser.
-- `id` is drawn again when a conversation is used: the greatest id is the latest conversation.
-- `owner` is the token or person that wrote to it, '' for a bootstrap token.
create table conversation (
  id integer primary key,
  conversation text not null,
  owner text not null,
  channel text not null,
  sender text not null,
  title text not null,
  subject text not null,
  created_at integer not null,
  updated_at integer not null,
  unique (conversation, owner)
);

create index conversation_owner on conversation (owner, id);
create index conversation_subject on conversation (subject);
