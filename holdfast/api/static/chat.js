// One conversation: its messages on the server, and those still to be sent.

import { ask } from "./ask.js";
import { keep, readKept } from "./keep.js";
import { withDelta, withReset, withStatus } from "./partial.js";

const PAGE = 200;
const STATES = {
  pending: "received",
  processing: "working",
  waiting: "waiting",
  completed: "answered",
  dead: "failed",
};
const STEPS = ["sending", "received", "routed", "working", "answered"];

export function randomId(length) {
  const bytes = crypto.getRandomValues(new Uint8Array(length));
  return [...bytes].map((byte) => (byte % 36).toString(36)).join("");
}

// The id of a handed-off message contains the id of the original one.
function isOf(id, messageId) {
  return id === messageId || Boolean(id?.includes(`_${messageId}/`));
}

export class Chat {
  constructor(onChange) {
    this.onChange = onChange;
    this.sent = new Map(Object.entries(readKept("unsent") ?? {}));
    this.open("");
  }

  // Show another conversation. Its messages come with the next refresh. The server does not know a
  // new one before its first message.
  open(conversation, isNew = false) {
    this.conversation = conversation;
    this.isNew = isNew;
    this.lines = [];
    this.progress = new Map();
    this.#changed();
  }

  get messages() {
    const known = new Map();
    for (const line of this.lines) {
      if (line.role === "user" && !line.handoff) {
        known.set(line.messageId, fromLine(line));
      }
    }
    for (const message of this.sent.values()) {
      if (message.conversation === this.conversation && !known.has(message.id)) {
        known.set(message.id, { ...message, answers: [] });
      }
    }
    for (const line of this.lines.filter((one) => one.role === "assistant")) {
      const asked = [...known.values()].find(({ id }) => isOf(line.messageId, id));
      const answer = { id: line.id, agent: line.agent, text: line.message };
      if (asked) {
        asked.answers.push(answer);
      } else {
        const id = `line-${line.id}`;
        known.set(id, { id, text: "", at: line.timestamp, state: "answered", answers: [answer] });
      }
    }
    return [...known.values()]
      .map((message) => ({ ...message, ...this.progress.get(message.id) }))
      .sort((one, other) => one.at - other.at);
  }

  find(messageId) {
    return this.messages.find(({ id }) => id === messageId);
  }

  async refresh() {
    if (this.isNew) {
      return;
    }
    const { conversation } = this;
    const path = `/api/conversations/${encodeURIComponent(conversation)}/messages?limit=${PAGE}`;
    const newest = await ask(path).catch((error) => {
      if (error.status === 404) {
        return [];
      }
      throw error;
    });
    if (conversation === this.conversation) {
      this.lines = newest.reverse();
      this.#changed();
    }
  }

  // A message that this page sends stays here until the server has it.
  put(message) {
    this.sent.set(message.id, message);
    this.#keepUnsent();
    this.#changed();
  }

  arrived(messageId) {
    const message = this.sent.get(messageId);
    if (message) {
      if (message.conversation === this.conversation) {
        this.isNew = false;
        keep("isNew", false);
      }
      this.put({ ...message, state: "received", error: undefined });
    }
  }

  failed(messageId, error) {
    this.put({ ...this.sent.get(messageId), state: "unsent", error });
  }

  // Apply the status of a message: the answers of all agents so far, and whether any still works.
  applyStatus(status) {
    const before = this.progress.get(status.messageId) ?? {};
    const answers = status.responses.map(({ id, agent, message: text, files }) => (
      { id, agent, text, files }
    ));
    const isOver = status.status === "completed" && status.working === 0;
    const partials = isOver ? {} : partialsAfter(before.partials, status);
    const values = { ...before, answers, partials, note: status.progress ?? before.note };
    if (status.status === "dead") {
      Object.assign(values, { state: "failed", error: status.error, eventId: status.eventId });
    } else if (isOver) {
      Object.assign(values, { state: answers.length ? "answered" : "silent", error: undefined });
    } else if (["processing", "waiting"].includes(status.status)) {
      Object.assign(values, { state: STATES[status.status], worker: status.agent });
    }
    this.#note(status.messageId, values);
  }

  // Apply the status of a message that an agent handed on: the text of that answer so far.
  applyHandedOn(messageId, status) {
    const before = this.progress.get(messageId) ?? {};
    this.#note(messageId, { ...before, partials: partialsAfter(before.partials, status) });
  }

  // Apply a frame. Returns the messages of this conversation that it is about.
  apply(frame) {
    const messages = this.about(frame);
    for (const message of messages) {
      const values = changesOf(message, frame);
      if (values) {
        this.#note(message.id, { ...this.progress.get(message.id), ...values });
      }
    }
    return messages;
  }

  about(frame) {
    const ids = [frame.messageId, ...(frame.messageIds || [])];
    return this.messages.filter((message) => ids.some((id) => isOf(id, message.id)));
  }

  // Whether text before a piece is missing: it came while this page was not connected.
  lacksTextBefore(frame) {
    return frame.type === "response_delta" && this.messages.some(
      ({ id, partials }) => (
        isOf(frame.messageId, id) && !withDelta(partials?.[frame.messageId], frame)
      ),
    );
  }

  retried(messageId) {
    const { partials } = this.progress.get(messageId) ?? {};
    this.#note(messageId, { state: "received", error: undefined, eventId: undefined, partials });
  }

  #note(messageId, values) {
    this.progress.set(messageId, values);
    this.#changed();
  }

  #keepUnsent() {
    const isUnsent = ({ state }) => ["sending", "unsent"].includes(state);
    const unsent = [...this.sent.values()].filter(isUnsent);
    keep("unsent", Object.fromEntries(unsent.map((message) => [message.id, message])));
  }

  #changed() {
    this.onChange(this.messages);
  }
}

function fromLine(line) {
  return {
    id: line.messageId,
    text: line.message,
    at: line.timestamp,
    state: STATES[line.status],
    worker: line.agent,
    error: line.error,
    eventId: line.eventId,
    answers: [],
  };
}

function forward(message, step, values = {}) {
  const isBack = message.state === "failed" || message.state === "retrying";
  const isFurther = STEPS.indexOf(step) > STEPS.indexOf(message.state);
  return isBack || isFurther ? { ...values, state: step, error: undefined } : undefined;
}

// The newest handoffs, with that of the frame.
function withHandoff(handoffs, { fromAgent, toAgent }) {
  return [...handoffs, `${fromAgent} → ${toAgent}`].slice(-8);
}

// The growing answers after a status: without those that ended.
function partialsAfter(partials, status) {
  const { messageId } = status;
  const growing = Object.entries(partials ?? {}).filter(([, { isOver }]) => !isOver);
  const kept = Object.fromEntries(growing);
  if (status.partial !== undefined) {
    kept[messageId] = withStatus(kept[messageId], status);
  } else if (["completed", "dead"].includes(status.status)) {
    delete kept[messageId];
  }
  return kept;
}

// The changes to a growing answer. A missing piece changes nothing: the page asks for the whole.
function growth({ state, partials = {} }, frame) {
  if (state === "answered") {
    return undefined;
  }
  const before = partials[frame.messageId];
  const change = frame.type === "response_reset" ? withReset : withDelta;
  const partial = change(before, frame) ?? before;
  return partial && { partials: { ...partials, [frame.messageId]: partial } };
}

// The answer of a turn is there: its text is shown until the status brings the response itself.
function withoutGrowth({ partials = {} }, { messageId }) {
  const ended = partials[messageId];
  return ended ? { ...partials, [messageId]: { ...ended, isOver: true } } : partials;
}

// The changes that a frame makes to a message; undefined for none.
function changesOf(message, frame) {
  switch (frame.type) {
    case "response_delta":
    case "response_reset":
      return isOf(frame.messageId, message.id) ? growth(message, frame) : undefined;
    case "step_start":
      return { step: frame.key };
    case "step_done":
      return message.step === frame.key ? { step: undefined } : undefined;
    case "progress":
      return { note: frame.text };
    case "chain_step_done":
    case "response_ready":
      return {
        partials: withoutGrowth(message, frame), step: undefined, note: undefined,
      };
    case "message_received":
      return frame.messageId === message.id ? forward(message, "received") : undefined;
    case "agent_routed":
      return forward(message, "routed", { worker: frame.agent });
    case "chain_step_start":
      return { state: "working", worker: frame.agent, error: undefined, step: undefined };
    case "chain_handoff":
      return { handoffs: withHandoff(message.handoffs ?? [], frame) };
    case "message_failed":
      return {
        state: frame.dead ? "failed" : "retrying",
        error: frame.error,
        eventId: frame.eventId,
        step: undefined,
        note: undefined,
      };
  }
  return undefined;
}
