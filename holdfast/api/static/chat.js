// The conversation of this browser: what was sent, how far each message is, and what came back.
// It lives in localStorage, so that a reload, and a second tab, show the same. Every message and every answer has a key of
// its own: tabs write at the same time, and none may undo what another has just written.

const PREFIX = "holdfast.chat.";
const MESSAGE = `${PREFIX}message.`;
const ANSWER = `${PREFIX}answer.`;
const KEPT = 200;
const STEPS = ["sending", "received", "routed", "working", "answered"];

export function randomId(length) {
  return [...crypto.getRandomValues(new Uint8Array(length))].map((byte) => (byte % 36).toString(36)).join("");
}

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

function write(key, value) {
  localStorage.setItem(key, JSON.stringify(value));
}

function all(prefix) {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  return keys.map(read).filter((value) => value !== null);
}

export class Chat {
  constructor(onChange) {
    this.onChange = onChange;
    if (!localStorage.getItem(`${PREFIX}sender`)) {
      write(`${PREFIX}sender`, `web-${randomId(9)}`);
    }
    this.senderId = read(`${PREFIX}sender`);
    addEventListener("storage", (event) => {
      if (event.key === null || event.key.startsWith(MESSAGE) || event.key.startsWith(ANSWER)) {
        this.#changed();
      }
    });
    this.#changed();
  }

  get agent() {
    return read(`${PREFIX}agent`) ?? "";
  }

  set agent(agent) {
    write(`${PREFIX}agent`, agent);
  }

  // Of this tab: another one may be further, or behind.
  get position() {
    return sessionStorage.getItem(`${PREFIX}position`) ?? "";
  }

  set position(position) {
    sessionStorage.setItem(`${PREFIX}position`, position);
  }

  get messages() {
    const answers = all(ANSWER).sort((one, other) => one.id - other.id);
    const messages = all(MESSAGE).sort((one, other) => one.at - other.at);
    return messages.map((message) => ({
      ...message,
      answers: answers.filter((answer) => answer.messageId === message.id),
    }));
  }

  get unfinished() {
    return this.messages.filter((message) => !["answered", "silent"].includes(message.state));
  }

  find(messageId) {
    return read(MESSAGE + messageId);
  }

  put(messageId, values) {
    write(MESSAGE + messageId, { ...this.find(messageId), ...values, id: messageId });
    this.#changed();
  }

  // What a teammate works on carries the id of the message it came of.
  hear(frame) {
    const ids = [frame.messageId, ...(frame.messageIds || [])];
    const isAbout = (message) => ids.some((id) => id === message.id || id?.includes(`_${message.id}`));
    for (const message of all(MESSAGE).filter(isAbout)) {
      const values = progress(message, frame);
      if (values) {
        this.put(message.id, values);
      }
    }
  }

  // Whether it is one of ours, whose answers we show and acknowledge.
  take(response) {
    if (response.senderId !== this.senderId) {
      return false;
    }
    const messageId = response.messageId || `response-${response.id}`;
    const { id, agent, message: text, files } = response;
    write(ANSWER + id, { id, messageId, agent, text, files });
    // Something said unasked stands by itself.
    const known = this.find(messageId) ?? { text: "", at: response.timestamp };
    this.put(messageId, { ...known, state: "answered", error: undefined });
    // Collected into one turn, they share this answer.
    for (const other of (response.messageIds ?? []).filter((id) => id !== messageId && this.find(id))) {
      this.put(other, { state: "answered", error: undefined });
    }
    return true;
  }

  clear() {
    for (const key of Object.keys(localStorage)) {
      if (key.startsWith(MESSAGE) || key.startsWith(ANSWER)) {
        localStorage.removeItem(key);
      }
    }
    this.#changed();
  }

  #changed() {
    const messages = this.messages;
    for (const old of messages.splice(0, Math.max(messages.length - KEPT, 0))) {
      localStorage.removeItem(MESSAGE + old.id);
      old.answers.forEach((answer) => localStorage.removeItem(ANSWER + answer.id));
    }
    this.onChange(messages);
  }
}

function forward(message, step, values = {}) {
  const isBack = message.state === "failed" || message.state === "retrying";
  const isFurther = STEPS.indexOf(step) > STEPS.indexOf(message.state);
  return isBack || isFurther ? { ...values, state: step, error: undefined } : undefined;
}

// What a frame changes about a message; undefined for nothing.
function progress(message, frame) {
  const isOwn = frame.messageId === message.id;
  switch (frame.type) {
    case "message_received":
      return isOwn ? forward(message, "received") : undefined;
    case "agent_routed":
      return forward(message, "routed", { worker: frame.agent });
    case "chain_step_start":
      return forward(message, "working", { worker: frame.agent }) ?? { worker: frame.agent };
    case "chain_handoff":
      return { handed: [...(message.handed || []), `${frame.fromAgent} → ${frame.toAgent}`].slice(-8) };
    case "chain_step_done":
      // Taken together with an earlier one, that one has the answer.
      if (!isOwn && frame.messageIds?.includes(message.id)) {
        return { state: "answered" };
      }
      return isOwn && !frame.response && message.state !== "answered" ? { state: "silent" } : undefined;
    case "message_failed":
      return { state: frame.dead ? "failed" : "retrying", error: frame.error, eventId: frame.eventId };
  }
  return undefined;
}
