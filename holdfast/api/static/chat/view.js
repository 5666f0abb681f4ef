// Shows a conversation: builds only the parts that changed, follows the end, keeps the place.

import { element } from "../dom.js";
import { answerHead, PARTS } from "./exchange.js";
import { GrowingText } from "./markdown.js";

const NEAR_END = 80;
const dayFormat = new Intl.DateTimeFormat(undefined, {
  weekday: "long", day: "numeric", month: "long",
});

function dayOf(millis) {
  const day = new Date(millis).toDateString();
  const now = new Date();
  if (day === now.toDateString()) {
    return "Today";
  }
  const yesterday = new Date(now.getFullYear(), now.getMonth(), now.getDate() - 1);
  return day === yesterday.toDateString() ? "Yesterday" : dayFormat.format(millis);
}

export class View {
  // `log` scrolls, `column` holds the exchanges. `onEnd` is told whether the end is in view.
  constructor({ log, column, empty, onEnd, onTop }) {
    Object.assign(this, { log, column, empty, onEnd, onTop });
    this.shown = new Map();
    this.actions = {};
    this.editing = null;
    this.open = new Set();
    this.versions = new Map();
    this.isAtEnd = true;
    log.addEventListener("scroll", () => this.#onScroll(), { passive: true });
    // Heights change after pictures load and while text grows: the end stays in view.
    const follow = new ResizeObserver(() => this.isAtEnd && this.shown.size && this.toEnd());
    follow.observe(column);
    follow.observe(log);
  }

  toEnd() {
    this.log.scrollTop = this.log.scrollHeight;
    this.#setAtEnd(true);
  }

  #onScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.log;
    this.#setAtEnd(scrollHeight - scrollTop - clientHeight < NEAR_END);
    if (this.isNearTop) {
      this.onTop();
    }
  }

  #setAtEnd(isAtEnd) {
    this.isAtEnd = isAtEnd;
    this.onEnd(isAtEnd);
  }

  // Show messages, oldest first; with `changed`, only those are looked at.
  show(messages, changed = null) {
    this.empty.hidden = messages.length > 0;
    this.#showAll(messages, changed);
    if (this.isAtEnd && messages.length) {
      this.toEnd();
    }
  }

  #showAll(messages, changed) {
    const ids = new Set(messages.map(({ id }) => id));
    for (const [id, { node }] of this.shown) {
      if (!ids.has(id)) {
        node.remove();
        this.shown.delete(id);
      }
    }
    const first = this.column.firstElementChild;
    const before = first?.getBoundingClientRect().top;
    let next = first;
    messages.forEach((message, nth) => {
      const known = this.shown.get(message.id)?.node;
      const isSame = known && changed && !changed.has(message.id);
      const node = isSame ? known : this.#sync(message, messages, nth);
      if (node === next) {
        next = next.nextElementSibling;
      } else {
        this.column.insertBefore(node, next);
      }
    });
    // Older messages came above: browsers keep the place, except at the very top.
    if (first?.isConnected && first !== this.column.firstElementChild) {
      this.log.scrollTop += first.getBoundingClientRect().top - before;
    }
  }

  get isNearTop() {
    return this.log.scrollTop < this.log.clientHeight;
  }

  #context(message, messages, nth) {
    const versionAt = this.versions.get(message.id)?.at;
    const version = this.versions.get(message.id)?.exchanges.get(message.versions?.[versionAt]);
    const before = messages[nth - 1];
    const day = dayOf(message.at);
    return {
      message,
      shown: version ?? message,
      versionAt: version ? versionAt : undefined,
      actions: this.actions,
      isEditing: this.editing === message.id,
      isOpen: this.open.has(message.id),
      isLast: nth === messages.length - 1,
      day: !before || dayOf(before.at) !== day ? day : "",
      isFirstNew: this.firstNew === message.id,
    };
  }

  #sync(message, messages, nth) {
    const known = this.shown.get(message.id) ?? this.#make(message);
    const context = this.#context(message, messages, nth);
    known.node.dataset.state = message.state;
    for (const [name, keyOf, build] of PARTS) {
      const key = JSON.stringify(keyOf(context)) ?? "";
      if (known.keys[name] !== key) {
        known.keys[name] = key;
        replacePart(known.parts[name], () => build(context));
      }
    }
    fill(known, context.shown === message ? message : {});
    return known.node;
  }

  #make({ id }) {
    const parts = {};
    const node = element("section", { class: "exchange", "data-message": id });
    for (const [name] of PARTS) {
      parts[name] = element("div", { class: `part ${name}-part` });
      node.append(parts[name]);
    }
    const made = { node, parts, keys: { growing: '""' }, growing: new Map() };
    this.shown.set(id, made);
    return made;
  }

  // Bring a line of a search into view. Returns whether it is there.
  reveal(messageId, lineId) {
    const node = this.column.querySelector(`[data-line="${Number(lineId)}"]`)
      ?? this.shown.get(messageId)?.node;
    if (node) {
      node.scrollIntoView({ block: "center" });
      node.classList.add("revealed");
      setTimeout(() => node.classList.remove("revealed"), 2000);
    }
    return Boolean(node);
  }
}

// Build a part anew. Focus inside returns to the control with the same key.
function replacePart(part, build) {
  const focused = part.contains(document.activeElement) && document.activeElement.dataset.key;
  part.replaceChildren(...build());
  if (focused) {
    part.querySelector(`[data-key="${focused}"]`)?.focus();
  }
}

// Write the text of growing answers in place; the rest of the exchange stays as it is.
function fill({ parts, growing }, { partials: all = {}, answers = [] }) {
  // The answer itself may have come before the news that its text is complete.
  const ended = new Set(answers.map(({ messageId }) => messageId));
  const partials = Object.fromEntries(Object.entries(all).filter(([turn]) => !ended.has(turn)));
  for (const [turn, { node }] of growing) {
    if (!partials[turn]?.text) {
      node.remove();
      growing.delete(turn);
    }
  }
  for (const [turn, { text, agent }] of Object.entries(partials)) {
    if (text) {
      const one = growing.get(turn) ?? begin(parts.growing, growing, turn, agent);
      one.text.show(text);
    }
  }
}

function begin(part, growing, turn, agent) {
  const text = new GrowingText();
  const bubble = element("div", {
    class: "bubble theirs growing", dir: "auto", "data-turn": turn, "aria-busy": "true",
  }, text.done, text.tail);
  const node = element("article", { class: "answer" }, answerHead(agent), bubble);
  part.append(node);
  const made = { node, text };
  growing.set(turn, made);
  return made;
}
