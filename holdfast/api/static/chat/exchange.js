// One exchange: the question of a person, the work behind the answer, and the answers.

import { avatar, button, codeElements, element, iconButton } from "../dom.js";
import { icon } from "../icons.js";
import { timeElement } from "../time.js";
import { activity, elapsed, hasActivity } from "./activity.js";
import { approval, choices } from "./approval.js";
import { attachments } from "./attachments.js";
import { copy, renderText } from "./markdown.js";

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

const UNSENT = ["sending", "unsent"];

const isEnded = ({ state: now }) => !UNFINISHED.includes(now) && !UNSENT.includes(now);

// The parts of an exchange in their order: a name, the values that decide whether a part is built
// anew, and its builder. Growing text is not among them: it is written in place.
export const PARTS = [
  ["day", ({ day }) => day, dayLine],
  ["new", ({ isFirstNew }) => isFirstNew, newLine],
  ["question", questionKey, question],
  ["work", workKey, work],
  ["answers", answersKey, answers],
  ["growing", () => "", () => []],
  ["doing", ({ message: { state, note, step } }) => [state, note, step], doing],
  ["asks", asksKey, asks],
  ["state", stateKey, state],
  ["tools", toolsKey, tools],
];

function dayLine({ day }) {
  return day ? [element("p", { class: "day" }, element("span", {}, day))] : [];
}

function newLine({ isFirstNew }) {
  return isFirstNew ? [element("p", { class: "day new" }, element("span", {}, "New"))] : [];
}

function questionKey({ shown, isEditing, actions, message }) {
  // A field that somebody writes in is never built anew.
  if (isEditing) {
    return [message.id];
  }
  return [shown.text, shown.files, shown.at, Boolean(actions.onEdit), isEnded(message),
    shown.id];
}

function question(context) {
  const { shown, isEditing, actions, message } = context;
  if (!shown.text && !shown.files?.length) {
    return [];
  }
  if (isEditing) {
    return [editor(context)];
  }
  const mayEdit = actions.onEdit && shown.id === message.id && isEnded(message);
  const text = element("div", { class: "bubble mine", dir: "auto" }, ...codeElements(shown.text));
  return [element("div", { class: "question" },
    ...attachments(shown.files, "mine"),
    shown.text ? text : "",
    element("div", { class: "row-tools" },
      copyButton(shown.text, "Copy"),
      mayEdit && iconButton("edit", "Edit", () => actions.onEdit(message), {
        class: "icon-button small", "data-key": "edit",
      }),
      timeElement(shown.at, { class: "when" })))];
}

function copyButton(text, label) {
  const node = iconButton("copy", label, () => copy(text, node), {
    class: "icon-button small", "data-key": "copy",
  });
  return node;
}

function editor({ message, actions }) {
  const box = element("textarea", { class: "input", dir: "auto", rows: "3", "data-key": "edited" });
  box.value = message.text;
  box.setAttribute("aria-label", "Edited text");
  const submit = () => box.value.trim() && actions.onResend(message, box.value.trim());
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      actions.onEdit(null);
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  });
  return element("form", {
    class: "question editor",
    onsubmit: (event) => {
      event.preventDefault();
      submit();
    },
  }, box, element("div", { class: "actions" },
    button("Cancel", () => actions.onEdit(null), { class: "button small" }),
    element("button", { class: "button primary small" }, "Ask again")));
}

function workKey({ message, isOpen }) {
  return [message.details, message.passed, isOpen, UNFINISHED.includes(message.state)];
}

function work({ message, shown, isOpen, actions }) {
  if (shown.id !== message.id || (!hasActivity(message) && !isOpen)) {
    return [];
  }
  const isRunning = UNFINISHED.includes(message.state);
  const onToggle = (isNowOpen) => actions.onFold(message, isNowOpen);
  return [activity(message, { isOpen, isRunning, onToggle })];
}

// The names of agents by id.
export const names = new Map();

export function answerHead(agent, at) {
  const name = names.get(agent) ?? agent;
  return element("p", { class: "who" }, avatar(name, agent),
    element("strong", { dir: "auto" }, name || "agent"),
    at && timeElement(at, { class: "when" }));
}

function answersKey({ shown }) {
  return [shown.answers, shown.id, shown.answers.map(({ agent }) => names.get(agent))];
}

function answers({ shown }) {
  return shown.answers.map((answer) => {
    const body = element("div", { class: "bubble theirs", dir: "auto" }, renderText(answer));
    return element("article", { class: "answer", "data-line": answer.id },
      answerHead(answer.agent, answer.at), body, ...attachments(answer.files, "theirs"));
  });
}

// The current work of the agent: the text of its progress, or the step that runs.
function doing({ message: { state: now, note, step } }) {
  const text = note ?? step;
  return text && UNFINISHED.includes(now)
    ? [element("p", { class: "doing", dir: "auto" }, text)]
    : [];
}

function asksKey({ message, actions }) {
  return [message.waitingFor, buttonsOf(message), Boolean(actions.onSignal),
    names.get(message.worker)];
}

function asks({ message, actions }) {
  const { waitingFor, worker } = message;
  const { onSignal } = actions;
  if (waitingFor) {
    return [approval(waitingFor, { agent: names.get(worker) ?? worker, onSignal })];
  }
  const buttons = buttonsOf(message);
  return buttons.length && onSignal ? [choices(buttons, onSignal)] : [];
}

// Buttons that an agent put under an answer, while its turn waits for one of them.
function buttonsOf({ state: now, answers: found }) {
  const isOpen = ["working", "waiting", "received"].includes(now);
  return isOpen ? found.flatMap(({ buttons, messageId }) => (
    (Array.isArray(buttons) ? buttons : []).map((one) => ({ ...one, messageId }))
  )) : [];
}

function stateKey({ message, actions }) {
  const { state: now, worker, error, isUnknown, eventId, position, since } = message;
  return [now, worker, error, isUnknown, eventId, position, since, message.answers.length,
    Object.keys(actions)];
}

function steps(message) {
  const at = PATH.indexOf(message.state);
  const items = PATH.slice(0, at + 1).map((step, index) => {
    const isLast = index === at;
    const hasWorker = step === "working" && message.worker;
    const label = hasWorker ? `${message.worker} is working` : LABELS[step];
    return element("li", isLast ? { "aria-current": "step" } : {}, label);
  });
  const time = message.state === "working" && message.since ? elapsed(message.since) : "";
  return [element("span", { class: "spinner" }), element("ol", { class: "steps" }, ...items), time];
}

function ahead({ lane, agent }, worker) {
  const parts = [
    lane ? `${lane} ahead in this conversation` : "",
    agent ? `${agent} ahead for ${worker || "the agent"}` : "",
  ].filter(Boolean);
  return parts.join(", ") || "next in line";
}

// A call that may have happened is never repeated blindly: the person says whether it did.
function retryButtons(message, onRetry) {
  const small = { class: "button small" };
  if (!message.isUnknown) {
    return [button("Retry", () => onRetry(message), { ...small, icon: "refresh" })];
  }
  return [
    element("span", { class: "why" }, "Did the call happen?"),
    button("It did: go on", () => onRetry(message, "done"), small),
    button("It did not: call again", () => onRetry(message, "not-done"), small),
  ];
}

function stateText(message) {
  const { state: now, error } = message;
  if (now === "failed" && error?.startsWith(STOPPED)) {
    return "stopped";
  }
  if (now === "answered") {
    return message.answers.length > 1 ? "done" : "";
  }
  return error ? `${LABELS[now] ?? now}: ${error}` : LABELS[now] ?? now;
}

function state({ message, shown, actions }) {
  if (shown.id !== message.id) {
    return [];
  }
  const { state: now } = message;
  const isStopped = stateText(message) === "stopped";
  const line = element("div", { class: "state", "data-state": isStopped ? "stopped" : now });
  if (PATH.includes(now)) {
    line.append(...steps(message));
  } else if (stateText(message)) {
    const sign = { failed: "warning", unsent: "warning", silent: "check", answered: "check" }[now];
    line.append(sign && !isStopped ? icon(sign) : "",
      element("span", { class: "why", dir: "auto" }, stateText(message)));
  }
  if (["received", "routed"].includes(now) && message.position) {
    line.append(element("span", { class: "position" }, ahead(message.position, message.worker)));
  }
  line.append(...stateButtons(message, actions));
  return line.childNodes.length ? [line] : [];
}

function stateButtons(message, { onRetry, onSendAgain, onDrop, onStop }) {
  const small = { class: "button small" };
  if (message.state === "failed" && message.eventId && onRetry) {
    return retryButtons(message, onRetry);
  }
  if (message.state === "unsent") {
    return [
      button("Send again", () => onSendAgain(message), small),
      button("Discard", () => onDrop(message), small),
    ];
  }
  if (UNFINISHED.includes(message.state) && onStop) {
    return [button("Stop", () => onStop(message), { ...small, icon: "stop", "data-key": "stop" })];
  }
  return [];
}

function toolsKey({ message, shown, actions, versionAt, isLast }) {
  return [message.state, shown.id, message.versions, versionAt, Object.keys(actions), isLast,
    shown.answers.map(({ text }) => text)];
}

function tools(context) {
  const { message, shown, actions, isLast } = context;
  const ended = isEnded(message);
  if (!ended || !message.text && !message.files?.length) {
    return [];
  }
  const text = shown.answers.map((answer) => answer.text).join("\n\n");
  const isNewest = shown.id === message.id;
  const small = { class: "icon-button small" };
  return [element("div", { class: `row-tools below ${isLast ? "last" : ""}`.trim() },
    text && copyButton(text, "Copy answer"),
    actions.onRegenerate && isNewest && iconButton("refresh", "Regenerate",
      () => actions.onRegenerate(message), { ...small, "data-key": "regenerate" }),
    isNewest && iconButton("steps", "Show the work behind it", () => actions.onDetails(message),
      { ...small, "data-key": "details" }),
    ...pager(context))];
}

function pager({ message, versionAt, actions }) {
  const { versions } = message;
  if (!versions || versions.length < 2) {
    return [];
  }
  const at = versionAt ?? versions.length - 1;
  const go = (to) => () => actions.onVersion(message, to);
  return [element("span", { class: "pager" },
    iconButton("chevronLeft", "Older version", go(at - 1), {
      class: "icon-button small", disabled: at === 0, "data-key": "older",
    }),
    element("span", { class: "number" }, `${at + 1} / ${versions.length}`),
    iconButton("chevronRight", "Newer version", go(at + 1), {
      class: "icon-button small", disabled: at === versions.length - 1, "data-key": "newer",
    }))];
}
