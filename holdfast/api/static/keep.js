// Text that is not on the server yet: the draft and messages that could not be sent.
// It is kept in the history entry of the tab, which survives a reload and has no quota to share.
// localStorage has a copy for other tabs; it may be full or forbidden, and then nothing is lost.

const PREFIX = "holdfast.chat.";

export function readStored(name) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name));
  } catch {
    return null;
  }
}

export function store(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Full or forbidden. The page works without it.
  }
}

export function readKept(name) {
  return history.state?.[name] ?? readStored(name);
}

export function keep(name, value) {
  history.replaceState({ ...history.state, [name]: value }, "");
  store(name, value);
}
