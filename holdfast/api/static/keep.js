// Text that is not on the server yet: drafts and messages that could not be sent.
// It is kept in the history entry of the tab, which survives a reload and has no quota to share.
// localStorage has a copy for other tabs; it may be full or forbidden, and then nothing is lost.

const PREFIX = "holdfast.chat.";
// Written by a person who may share the browser with others, and kept under that person's name.
const TEXTS = ["drafts", "unsent"];

let person = "";

// The newest values of this tab: an older history entry, after Back, must not bring older ones.
let kept = { ...history.state };

// From now on, this person writes.
export function keepFor(name) {
  person = name;
}

function keyOf(name) {
  return TEXTS.includes(name) ? `${name}/${person}` : name;
}

// Forget what this person has written and not sent.
export function forgetTexts() {
  for (const key of TEXTS.map(keyOf)) {
    delete kept[key];
    try {
      localStorage.removeItem(PREFIX + key);
    } catch {
      // Forbidden, so nothing is there.
    }
  }
  keepAll();
}

export function readStored(name) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + keyOf(name)));
  } catch {
    return null;
  }
}

export function store(name, value) {
  try {
    localStorage.setItem(PREFIX + keyOf(name), JSON.stringify(value));
  } catch {
    // Full or forbidden. The page works without it.
  }
}

export function readKept(name) {
  return kept[keyOf(name)] ?? readStored(name);
}

// Keep a value in this tab alone.
export function keepHere(name, value, address = undefined) {
  kept = { ...kept, [keyOf(name)]: value };
  history.replaceState({ ...history.state, [keyOf(name)]: value }, "", address);
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
