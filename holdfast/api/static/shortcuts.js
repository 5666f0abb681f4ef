// Keyboard shortcuts, and the sheet that lists them.

import { element } from "./dom.js";
import { openDialog } from "./overlay.js";

const TYPING = "input, textarea, select, [contenteditable]";
const SEQUENCE_WITHIN = 1200;
const isApple = /Mac|iP(hone|ad|od)/.test(navigator.platform);

const known = [];
let begun = { key: "", at: 0 };

// Add shortcuts: {keys: "Mod+K" | "g c" | "?", label, run, isTyping}. Those without a modifier do
// nothing while a person writes, unless `isTyping` is set.
export function addShortcuts(...shortcuts) {
  known.push(...shortcuts);
}

function matches(event, keys) {
  const parts = keys.split("+");
  const key = parts.pop();
  const wanted = new Set(parts);
  const mod = isApple ? event.metaKey : event.ctrlKey;
  return event.key.toLowerCase() === key.toLowerCase()
    && wanted.has("Mod") === mod
    && wanted.has("Alt") === event.altKey
    && (wanted.has("Shift") === event.shiftKey || !/^[a-z0-9]$|^.{2,}$/i.test(key));
}

function matchesSequence(event, keys) {
  const [first, second] = keys.split(" ");
  const isSoon = Date.now() - begun.at < SEQUENCE_WITHIN;
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  return isPlain && isSoon && begun.key === first && event.key.toLowerCase() === second;
}

function find(event) {
  const isTyping = event.target.closest?.(TYPING) !== null;
  return known.find(({ keys, isTyping: isAlways, when }) => {
    const isBare = !/Mod|Alt/.test(keys);
    if (isBare && isTyping && !isAlways) {
      return false;
    }
    const isIt = keys.includes(" ") ? matchesSequence(event, keys) : matches(event, keys);
    return isIt && (when?.() ?? true);
  });
}

function onKey(event) {
  // A dialog has keys of its own, and a word being composed uses Enter and Escape.
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) {
    return;
  }
  const found = find(event);
  begun = { key: event.key.toLowerCase(), at: Date.now() };
  if (found) {
    event.preventDefault();
    found.run(event);
  }
}

function keysOf(keys) {
  const shown = { Mod: isApple ? "⌘" : "Ctrl", Shift: isApple ? "⇧" : "Shift", Escape: "Esc",
    ArrowUp: "↑", ArrowDown: "↓", Alt: isApple ? "⌥" : "Alt" };
  const parts = keys.split(/[+ ]/).filter(Boolean);
  return parts.flatMap((part, nth) => [
    nth ? " " : "",
    element("kbd", {}, shown[part] ?? (part.length === 1 ? part.toUpperCase() : part)),
  ]);
}

export function showShortcuts() {
  const rows = known.filter(({ label }) => label).flatMap(({ keys, label }) => [
    element("dt", {}, label),
    element("dd", {}, ...keysOf(keys)),
  ]);
  return openDialog("Keyboard shortcuts", (close) => element("div", { class: "dialog-body" },
    element("dl", { class: "keys" }, ...rows),
    element("div", { class: "actions" },
      element("button", { type: "button", class: "button", onclick: () => close() }, "Close"))));
}

document.addEventListener("keydown", onKey);
