// One conversation: its lines on the server, messages still to be sent, and changes by frames.

import { ask, askPage } from "../ask.js";
import { keep, readKept } from "../keep.js";
import { changesOf, partialsAfter } from "./frames.js";
import { withDelta } from "./partial.js";

const PAGE = 60;
const OLDER_PAGE = 60;
const STATES = {
  pending: "received",
  processing: "working",
  waiting: "waiting",
  completed: "answered",
  dead: "failed",
};
export const UNFINISHED = ["received", "routed", "working", "waiting", "retrying"];

export function randomId(length) {
  const bytes = crypto.getRandomValues(new Uint8Array(length));
  return [...bytes].map((byte) => (byte % 36).toString(36)).join("");
}

// The id of a handed-off message contains the id of the original one.
function isOf(id, messageId) {
  return id === messageId || Boolean(id?.includes(`_${messageId}/`));
}

// By the clock of the server. As the clock here may differ, messages without a line come last.
function inOrder(one, other) {
  const isNew = ({ isWithoutLine, state }) => isWithoutLine === true && state !== "unsent";
  return isNew(one) - isNew(other) || one.at - other.at;
}

export class Chat {
  // `onChange` gets the set of ids that changed, or null for all.
  constructor(onChange) {
    this.onChange = () => undefined;
    this.sent = new Map();
    this.open("");
    this.onChange = onChange;
  }

  // Read the messages that this person could not send.
  readUnsent() {
    this.sent = new Map(Object.entries(readKept("unsent") ?? {}));
  }

  // Show another conversation. Its messages come with the next refresh. The server does not know a
  // new one before its first message.
  open(conversation, isNew = false) {
    this.conversation = conversation;
    this.isNew = isNew;
    this.isLoaded = isNew;
    // Whether the server knows of messages that it cannot show while no process serves their agent.
    this.isIncomplete = false;
    this.lines = [];
    this.older = undefined;
    this.progress = new Map();
    this.#rebuild();
  }

  get messages() {
    return this.list;
  }

  find(messageId) {
    return this.byId.get(messageId);
  }

  get unfinished() {
    return this.list.filter(({ state }) => UNFINISHED.includes(state));
  }

  // The id of the newest line on the server.
  get newestLine() {
    return this.lines.reduce((most, { id }) => Math.max(most, id ?? 0), 0);
  }

  async refresh() {
    if (this.isNew) {
      return;
    }
    const { conversation } = this;
    const found = await askPage(`${this.#path}&limit=${PAGE}`).catch((error) => {
      if (error.status === 404) {
        return { rows: [], isUnknown: true };
      }
      throw error;
    });
    if (conversation === this.conversation) {
      this.isIncomplete = !found.isUnknown && !found.rows.length;
      this.isLoaded = true;
      this.#merge(found);
    }
  }

  get #path() {
    return `/api/conversations/${encodeURIComponent(this.conversation)}/messages?html=true`;
  }

  // Put the newest page in place of what it covers. Pages before it stay.
  #merge({ rows, next }) {
    const from = rows.reduce((least, { id }) => Math.min(least, id ?? least), Infinity);
    const before = next ? this.lines.filter(({ id }) => id !== null && id < from) : [];
    if (!before.length) {
      this.older = next ?? undefined;
    }
    this.lines = [...before, ...rows.reverse()];
    this.#rebuild();
  }

  // Load lines before those that are known. Returns whether there were any.
  async loadOlder() {
    if (!this.older || this.isLoadingOlder) {
      return false;
    }
    const { conversation } = this;
    this.isLoadingOlder = true;
    try {
      const path = `${this.#path}&limit=${OLDER_PAGE}&before_id=${this.older}`;
      const { rows, next } = await askPage(path);
      if (conversation === this.conversation) {
        const before = new Set(this.byId.keys());
        const first = this.list[0]?.id;
        this.older = next ?? undefined;
        this.lines = [...rows.reverse(), ...this.lines];
        this.#rebuild(() => new Set([...this.byId.keys(), first].filter((id) => (
          id === first || !before.has(id)
        ))));
      }
    } finally {
      this.isLoadingOlder = false;
    }
    return true;
  }

  // The exchange as it was asked and answered in an older version.
  async loadVersions(messageId) {
    const lines = await ask(`${this.#path}&versionsOf=${encodeURIComponent(messageId)}`);
    return new Map(exchangesOf(lines.reverse()).map((one) => [one.id, one]));
  }

  // `changedOf` returns the ids of the messages that may have changed; null means all.
  #rebuild(changedOf = () => null) {
    const found = new Map(exchangesOf(this.lines).map((one) => [one.id, one]));
    // Older versions of a question are not in the list, even if this page has sent them. A newer
    // one stays: lines that were read just before it may name it already.
    const replaced = new Set([...found.values()].flatMap(({ id, versions = [] }) => (
      versions.slice(0, Math.max(0, versions.indexOf(id)))
    )));
    for (const message of this.sent.values()) {
      if (message.conversation === this.conversation && !found.has(message.id)) {
        found.set(message.id, { ...message, answers: [], isWithoutLine: true });
        replaced.add(message.edits ?? message.regenerates);
      }
    }
    this.byId = new Map();
    for (const message of found.values()) {
      if (!replaced.has(message.id)) {
        this.byId.set(message.id, { ...message, ...this.progress.get(message.id) });
      }
    }
    this.list = [...this.byId.values()].sort(inOrder);
    this.onChange(changedOf());
  }

  // A message that this page sends stays here until the server has it.
  put(message) {
    this.sent.set(message.id, message);
    this.#keepUnsent();
    this.#rebuild();
  }

  noteArrival(messageId) {
    const message = this.sent.get(messageId);
    if (message) {
      if (message.conversation === this.conversation) {
        this.isNew = false;
        keep("isNew", false);
      }
      this.put({ ...message, state: "received", error: undefined });
    }
  }

  noteFailure(messageId, error, isRefused) {
    this.put({ ...this.sent.get(messageId), state: "unsent", error, isRefused });
  }

  // Forget a message that was not sent.
  drop(messageId) {
    this.sent.delete(messageId);
    this.#keepUnsent();
    this.#rebuild();
  }

  // Apply the status of a message: the answers of all agents so far, and whether any still works.
  applyStatus(status) {
    const before = this.progress.get(status.messageId) ?? {};
    const known = this.find(status.messageId)?.answers ?? [];
    const answers = status.responses.map((one) => answerOf(one, known));
    const isOver = status.status === "completed" && status.working === 0;
    const partials = isOver ? {} : partialsAfter(before.partials, status);
    const values = { ...before, answers, partials, note: status.progress ?? before.note };
    Object.assign(values, detailsOf(status));
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
    const direct = ids.map((id) => this.byId.get(id)).filter(Boolean);
    // Only a message that is being worked on has teammates at work.
    const handed = this.unfinished.filter((message) => (
      !direct.includes(message) && ids.some((id) => isOf(id, message.id))
    ));
    return [...direct, ...handed];
  }

  // Whether text before a piece is missing: it came while this page was not connected.
  lacksTextBefore(frame) {
    return frame.type === "response_delta" && this.about(frame).some(
      ({ partials }) => !withDelta(partials?.[frame.messageId], frame),
    );
  }

  // Only a person can tell whether a call of this message happened.
  askWhetherDone(messageId) {
    this.#note(messageId, { ...this.progress.get(messageId), isUnknown: true });
  }

  noteRetry(messageId) {
    const { partials } = this.progress.get(messageId) ?? {};
    this.#note(messageId, { state: "received", error: undefined, eventId: undefined, partials });
  }

  #note(messageId, values) {
    this.progress.set(messageId, values);
    const known = this.byId.get(messageId);
    if (known) {
      const at = this.list.indexOf(known);
      const changed = { ...known, ...values };
      this.byId.set(messageId, changed);
      this.list[at] = changed;
      this.onChange(new Set([messageId]));
    }
  }

  #keepUnsent() {
    const isUnsent = ({ state }) => ["sending", "unsent"].includes(state);
    const unsent = [...this.sent.values()].filter(isUnsent);
    keep("unsent", Object.fromEntries(unsent.map((message) => [message.id, message])));
  }
}

// The parts of a status that the fold with the work of agents shows.
function detailsOf(status) {
  const { position, waitingFor, steps, handoffs, tokens, cost } = status;
  const { startedAt, endedAt, agent, working } = status;
  const handedOn = (handoffs ?? []).filter(({ status: state }) => state !== "completed");
  return {
    position: status.status === "pending" ? position : undefined,
    waitingFor,
    details: { steps, handoffs, tokens, cost, startedAt, endedAt, agent, working, handedOn },
  };
}

function answerOf(response, known) {
  const { id, messageId, agent, message: text, html, files, fileIds, timestamp } = response;
  const line = known.find((one) => one.text === text && one.agent === agent);
  const named = line?.files ?? (fileIds ?? []).map((fileId, nth) => (
    { id: fileId, name: String(files?.[nth] ?? fileId).split("/").pop() }
  ));
  return {
    id: line?.id ?? `response-${id}`,
    messageId,
    agent,
    text,
    html: html ?? line?.html,
    at: line?.at ?? timestamp,
    files: named,
    buttons: response.metadata?.buttons,
  };
}

// Group lines, oldest first, by the message of a person that led to them.
function exchangesOf(lines) {
  const known = new Map();
  for (const line of lines) {
    if (line.role === "user" && !line.handoff) {
      known.set(line.messageId, questionOf(line));
    }
  }
  for (const line of lines) {
    if (line.role === "assistant") {
      addAnswer(known, line);
    }
  }
  return [...known.values()];
}

function addAnswer(known, line) {
  const { id, agent, message: text, html, timestamp: at, files, messageId } = line;
  const answer = { id, messageId, agent, text, html, at, files };
  const origin = known.get(line.origin) ?? known.get(messageId)
    ?? [...known.values()].find((one) => isOf(messageId, one.id));
  if (origin) {
    origin.answers.push(answer);
  } else {
    const ownId = `line-${id}`;
    known.set(ownId, { id: ownId, text: "", at, state: "answered", answers: [answer] });
  }
}

function questionOf(line) {
  return {
    id: line.messageId,
    text: line.message,
    at: line.timestamp,
    state: STATES[line.status],
    worker: line.agent,
    error: line.error,
    eventId: line.eventId,
    files: line.files,
    versions: line.versions,
    answers: [],
  };
}
