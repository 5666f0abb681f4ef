// Text that is not on the server yet: drafts and messages that could not be sent.
// It is kept in the history entry of the tab, which survives a reload and has no quota to share.
// localStorage has a copy for other tabs; it may be full or forbidden, and then nothing is lost.

const PREFIX = "holdfast.chat.";

// The newest values of this tab: an older history entry, after Back, must not bring older ones.
let kept = { ...history.state };

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
  return kept[name] ?? readStored(name);
}

// Keep a value in this tab alone.
export function keepHere(name, value, address = undefined) {
  kept = { ...kept, [name]: value };
  history.replaceState({ ...history.state, [name]: value }, "", address);
}

// After Back or Forward: the entry gets the newest values.
export function keepAll() {
  history.replaceState(kept, "");
}

export function keep(name, value) {
  keepHere(name, value);
  store(name, value);
}

// Begin a new history entry, which Back leaves again.
export function visit(address) {
  history.pushState(kept, "", address);
}
