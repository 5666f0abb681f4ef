// The conversation of this browser: what was sent, how far each message is, and what came back.
// It lives in localStorage, so that a reload, and a second tab, show the same.

const KEY = "holdfast.chat";
const KEPT = 200;
const STEPS = ["sending", "received", "routed", "working", "answered"];

function fresh() {
  const id = [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => (byte % 36).toString(36)).join("");
  return { senderId: `web-${id}`, agent: "", position: "", messages: [] };
}

function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY));
    return kept && Array.isArray(kept.messages) ? kept : fresh();
  } catch {
    return fresh();
  }
}

export class Chat {
  constructor(onChange) {
    this.onChange = onChange;
    this.state = read();
    this.change(() => {});
    addEventListener("storage", (event) => {
      if (event.key === KEY) {
        this.state = read();
        this.onChange(this.state);
      }
    });
  }

  // Read again before each change: another tab may have written meanwhile.
  change(edit) {
    if (localStorage.getItem(KEY)) {
      this.state = read();
    }
    edit(this.state);
    this.state.messages = this.state.messages.slice(-KEPT);
    localStorage.setItem(KEY, JSON.stringify(this.state));
    this.onChange(this.state);
  }

  get unfinished() {
    return this.state.messages.filter((message) => !["answered", "silent"].includes(message.state));
  }

  find(messageId) {
    return this.state.messages.find((message) => message.id === messageId);
  }

  // What a teammate works on carries the id of the message it came of.
  #about(state, frame) {
    const ids = [frame.messageId, ...(frame.messageIds || [])];
    return state.messages.filter((message) => ids.some((id) => id === message.id || id?.includes(`_${message.id}`)));
  }

  add(message) {
    this.change((state) => state.messages.push(message));
  }

  put(messageId, values) {
    this.change((state) => {
      for (const message of state.messages.filter((one) => one.id === messageId)) {
        Object.assign(message, values);
      }
    });
  }

  hear(frame) {
    this.change((state) => {
      for (const message of this.#about(state, frame)) {
        progress(message, frame);
      }
    });
  }

  // Whether it is one of ours, whose answers we show and acknowledge.
  take(response) {
    if (response.senderId !== this.state.senderId) {
      return false;
    }
    this.change((state) => {
      const answered = state.messages.find((message) => message.id === response.messageId);
      const message = answered || unasked(state, response);
      if (!message.answers.some((answer) => answer.id === response.id)) {
        message.answers.push({ id: response.id, agent: response.agent, text: response.message, files: response.files });
      }
      message.state = "answered";
    });
    return true;
  }

  clear() {
    this.change((state) => {
      state.messages = [];
    });
  }
}

function unasked(state, response) {
  const message = { id: response.messageId || `response-${response.id}`, text: "", state: "answered", answers: [] };
  state.messages.push(message);
  return message;
}

function forward(message, step) {
  if (message.state === "failed" || message.state === "retrying" || STEPS.indexOf(step) > STEPS.indexOf(message.state)) {
    message.state = step;
    message.error = undefined;
  }
}

function progress(message, frame) {
  switch (frame.type) {
    case "message_received":
      if (frame.messageId === message.id) {
        forward(message, "received");
      }
      break;
    case "agent_routed":
      message.worker = frame.agent;
      if (message.state !== "answered") {
        forward(message, "routed");
      }
      break;
    case "chain_step_start":
      message.worker = frame.agent;
      if (message.state !== "answered") {
        forward(message, "working");
      }
      break;
    case "chain_handoff":
      message.handed = [...(message.handed || []), `${frame.fromAgent} → ${frame.toAgent}`].slice(-8);
      break;
    case "chain_step_done":
      if (frame.messageId !== message.id && frame.messageIds?.includes(message.id)) {
        // Taken together with an earlier one, which has the answer.
        message.state = "answered";
      } else if (!frame.response && !message.answers.length && frame.messageId === message.id) {
        message.state = "silent";
      }
      break;
    case "message_failed":
      Object.assign(message, { state: frame.dead ? "failed" : "retrying", error: frame.error, eventId: frame.eventId });
      break;
  }
}
