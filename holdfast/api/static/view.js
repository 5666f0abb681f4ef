// Shows a conversation. Messages are inserted as text, never as markup.

const LABELS = {
  sending: "sending",
  unsent: "not sent",
  received: "received",
  routed: "routed",
  working: "working",
  answered: "answered",
  silent: "read, no answer",
  waiting: "waiting",
  retrying: "failed, trying again",
  failed: "failed",
};
const PATH = ["received", "routed", "working"];
const UNFINISHED = [...PATH, "waiting", "retrying"];
const STOPPED = "cancelled";

export function element(name, values = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(values)) {
    if (key.startsWith("on")) {
      node.addEventListener(key.slice(2), value);
    } else if (value !== undefined && value !== false) {
      node.setAttribute(key, value === true ? "" : value);
    }
  }
  node.append(...children.filter((child) => child !== undefined && child !== ""));
  return node;
}

export function button(label, onclick, values = {}) {
  return element("button", { type: "button", class: "quiet", onclick, ...values }, label);
}

// Turn fenced and quoted code into elements; leave the rest as text.
export function codeElements(text) {
  return text.split(/\n?(```[\s\S]*?(?:```|$))\n?/).flatMap((part) => {
    if (part.startsWith("```")) {
      const code = part.slice(3).replace(/```$/, "").replace(/^[\w+-]*\n/, "");
      return [element("pre", {}, element("code", {}, code))];
    }
    return part.split(/(`[^`\n]+`)/).map((piece) => {
      const isCode = piece.length > 2 && piece.startsWith("`") && piece.endsWith("`");
      return isCode ? element("code", {}, piece.slice(1, -1)) : piece;
    });
  });
}

function steps(message) {
  const at = PATH.indexOf(message.state);
  const items = PATH.slice(0, at + 1).map((step, index) => {
    const isLast = index === at;
    const hasWorker = step === "working" && message.worker;
    const label = hasWorker ? `${message.worker} is working` : LABELS[step];
    return element("li", isLast ? { "aria-current": "step", class: "busy" } : {}, label);
  });
  return element("ol", { class: "steps" }, ...items);
}

// The current work of the agent: its own words, or the step that runs.
function doing({ state, note, step }) {
  const text = note ?? step;
  return text && UNFINISHED.includes(state)
    ? [element("p", { class: "doing", role: "status", dir: "auto" }, text)]
    : [];
}

function state(message, { onRetry, onSendAgain, onStop }) {
  const line = element("div", { class: "state", "data-state": message.state });
  if (PATH.includes(message.state)) {
    line.append(steps(message));
  } else if (message.state === "failed" && message.error?.startsWith(STOPPED)) {
    line.append(element("span", { class: "why" }, "stopped"));
  } else if (message.state === "answered" && message.answers.length > 1) {
    line.append(element("span", { class: "why" }, "done"));
  } else if (message.state !== "answered") {
    const label = LABELS[message.state] || message.state;
    const text = message.error ? `${label}: ${message.error}` : label;
    line.append(element("span", { class: "why" }, text));
  }
  if (message.state === "failed" && message.eventId && onRetry) {
    line.append(button("Retry", () => onRetry(message)));
  }
  if (message.state === "unsent") {
    line.append(button("Send again", () => onSendAgain(message)));
  }
  if (UNFINISHED.includes(message.state) && onStop) {
    line.append(button("Stop", () => onStop(message)));
  }
  return line;
}

function bubble(side, text) {
  return element("div", { class: `bubble ${side}`, dir: "auto" }, ...codeElements(text));
}

// The answers that grow, empty: `fill` writes their text.
function growing({ partials = {} }) {
  return Object.entries(partials).filter(([, { text }]) => text).flatMap(([turn, { agent }]) => [
    element("p", { class: "who" }, agent || ""),
    element("div", {
      class: "bubble theirs growing", dir: "auto", "data-turn": turn, "aria-busy": "true",
    }),
  ]);
}

// Write the text of growing answers into their bubbles; the rest of the exchange stays as it is.
function fill(node, { partials = {} }) {
  for (const bubble of node.querySelectorAll(".growing")) {
    const { text } = partials[bubble.dataset.turn];
    if (bubble.shownText !== text) {
      bubble.shownText = text;
      bubble.replaceChildren(...codeElements(text));
    }
  }
}

// The values that decide whether an exchange is built anew: all but the text of growing answers.
function keyOf(message, actions) {
  const turns = Object.entries(message.partials ?? {}).map(([turn, { text }]) => [turn, !text]);
  return JSON.stringify([{ ...message, partials: turns }, Object.keys(actions)]);
}

function exchange(message, actions) {
  const parts = [];
  if (message.text) {
    parts.push(bubble("mine", message.text));
  }
  for (const step of message.handoffs || []) {
    parts.push(element("p", { class: "who" }, step));
  }
  for (const answer of message.answers) {
    parts.push(element("p", { class: "who" }, answer.agent || ""));
    parts.push(bubble("theirs", answer.text));
    for (const file of answer.files || []) {
      parts.push(element("p", { class: "who" }, `file: ${file}`));
    }
  }
  parts.push(...growing(message), ...doing(message), state(message, actions));
  const values = { class: "exchange", "data-message": message.id, "data-state": message.state };
  return element("section", values, ...parts);
}

export class View {
  constructor({ log, empty, onRetry, onSendAgain, onStop }) {
    Object.assign(this, { log, empty, onRetry, onSendAgain, onStop });
    this.shown = new Map();
    this.mayRetry = true;
    this.mayStop = true;
  }

  get actions() {
    return {
      onSendAgain: this.onSendAgain,
      ...(this.mayRetry ? { onRetry: this.onRetry } : {}),
      ...(this.mayStop ? { onStop: this.onStop } : {}),
    };
  }

  // Replace only nodes that changed, so that scroll position and selection stay.
  show(messages) {
    const wasAtEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 80;
    this.empty.hidden = messages.length > 0;
    const before = this.shown;
    this.shown = new Map();
    for (const message of messages) {
      const key = keyOf(message, this.actions);
      const known = before.get(message.id);
      before.delete(message.id);
      const node = known?.key === key ? known.node : exchange(message, this.actions);
      fill(node, message);
      if (known && known.node !== node) {
        known.node.replaceWith(node);
      } else if (!known) {
        this.log.append(node);
      }
      this.shown.set(message.id, { key, node });
    }
    for (const { node } of before.values()) {
      node.remove();
    }
    if (wasAtEnd) {
      this.log.scrollTop = this.log.scrollHeight;
    }
  }
}
