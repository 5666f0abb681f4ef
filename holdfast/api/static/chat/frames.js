// The changes that frames of the event stream make to a message.

import { withDelta, withReset, withStatus } from "./partial.js";

const STEPS = ["sending", "received", "routed", "working", "answered"];
const MOST_HANDOFFS = 8;

function forward(message, step, values = {}) {
  const isBack = message.state === "failed" || message.state === "retrying";
  const isFurther = STEPS.indexOf(step) > STEPS.indexOf(message.state);
  return isBack || isFurther ? { ...values, state: step, error: undefined } : undefined;
}

// The growing answers after a status: without those that ended.
export function partialsAfter(partials, status) {
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

function withHandoff({ passed = [] }, { fromAgent, toAgent }) {
  return { passed: [...passed, `${fromAgent} → ${toAgent}`].slice(-MOST_HANDOFFS) };
}

// The changes that a frame makes to a message; undefined for none.
export function changesOf(message, frame) {
  switch (frame.type) {
    case "response_delta":
    case "response_reset":
      return growth(message, frame);
    case "step_start":
      return { step: frame.key };
    case "step_done":
      return message.step === frame.key ? { step: undefined } : undefined;
    case "progress":
      return { note: frame.text };
    case "chain_step_done":
    case "response_ready":
      return { partials: withoutGrowth(message, frame), step: undefined, note: undefined };
    case "message_received":
      return frame.messageId === message.id ? forward(message, "received") : undefined;
    case "agent_routed":
      return forward(message, "routed", { worker: frame.agent });
    case "chain_step_start":
      return begun(frame);
    case "chain_handoff":
      return withHandoff(message, frame);
    case "message_failed":
      return failureOf(frame);
  }
  return undefined;
}

function begun({ agent, timestamp }) {
  return {
    state: "working", worker: agent, since: timestamp,
    error: undefined, step: undefined, position: undefined, waitingFor: undefined,
  };
}

function failureOf({ dead, error, eventId }) {
  return {
    state: dead ? "failed" : "retrying", error, eventId,
    step: undefined, note: undefined, waitingFor: undefined,
  };
}
