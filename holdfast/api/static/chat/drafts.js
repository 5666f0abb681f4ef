// Drafts, one per conversation: text and files that were uploaded for it.

import { keepHere, readKept, readStored, store } from "../keep.js";

const MOST = 30;
const NONE = { text: "", files: [] };

export function draftOf(conversation) {
  return readKept("drafts")?.[conversation] ?? readStored("drafts")?.[conversation] ?? NONE;
}

function withDraft(drafts, conversation, draft) {
  const others = Object.entries(drafts ?? {}).filter(([name]) => name !== conversation);
  const isEmpty = !draft.text && !draft.files.length;
  // An empty draft of this tab hides an older one in the storage that all tabs share.
  const kept = isEmpty ? NONE : draft;
  return Object.fromEntries([...others.slice(-MOST + 1), [conversation, kept]]);
}

export function keepDraft(conversation, draft) {
  keepHere("drafts", withDraft(readKept("drafts"), conversation, draft));
  store("drafts", withDraft(readStored("drafts"), conversation, draft));
}
