// The work behind an answer: who worked, who handed what to whom, steps with durations and cost.
// Folded unless a person opens it.

import { element } from "../dom.js";
import { icon } from "../icons.js";
import { duration } from "../time.js";

const TICK = 1000;
const LONGEST_TEXT = 160;
const ICONS = { done: "check", completed: "check", failed: "warning", unknown: "warning",
  dead: "warning" };

const money = new Intl.NumberFormat(undefined, {
  style: "currency", currency: "USD", maximumFractionDigits: 4,
});
const count = new Intl.NumberFormat();

function shorten(text) {
  const signs = [...(text ?? "")];
  return signs.length > LONGEST_TEXT ? `${signs.slice(0, LONGEST_TEXT).join("")}…` : text ?? "";
}

// A time span that grows by itself until `end` is known.
export function elapsed(start, end = undefined) {
  const text = duration((end ?? Date.now()) - start);
  const values = end ? { class: "number" } : { class: "number", "data-since": start };
  return element("span", values, text);
}

setInterval(() => {
  for (const node of document.querySelectorAll("[data-since]")) {
    node.textContent = duration(Date.now() - Number(node.dataset.since));
  }
}, TICK);

function usage({ tokens, cost }) {
  return [
    tokens ? `${count.format(tokens)} tokens` : "",
    cost ? money.format(cost) : "",
  ].filter(Boolean);
}

function stepItem(step) {
  const isRunning = step.status === "started";
  const sign = isRunning
    ? element("span", { class: "spinner" })
    : icon(ICONS[step.status] ?? "clock", step.status);
  const time = step.startedAt && elapsed(step.startedAt, step.endedAt ?? undefined);
  const facts = [step.status === "done" || isRunning ? "" : step.status, ...usage(step)];
  return element("li", { class: "step", "data-status": step.status }, sign,
    element("span", { class: "step-name", dir: "auto" }, step.key),
    element("span", { class: "facts number" }, facts.filter(Boolean).join(" · ")),
    time || element("span"),
    step.error && element("p", { class: "step-error", dir: "auto" }, shorten(step.error)));
}

function stepList(steps) {
  return steps?.length ? element("ul", { class: "step-list" }, ...steps.map(stepItem)) : undefined;
}

function handoffItem(one) {
  const isRunning = one.startedAt && !one.endedAt;
  const time = one.startedAt && elapsed(one.startedAt, one.endedAt ?? undefined);
  return element("li", { class: "handoff", "data-status": one.status },
    element("p", { class: "handoff-head" },
      isRunning ? element("span", { class: "spinner" }) : icon(ICONS[one.status] ?? "clock"),
      element("strong", {}, `${one.fromAgent} → ${one.toAgent}`),
      element("span", { class: "facts number" }, usage(one).join(" · ")), time || element("span")),
    element("p", { class: "handoff-text", dir: "auto" }, shorten(one.message)),
    stepList(one.steps),
    one.error && element("p", { class: "step-error", dir: "auto" }, shorten(one.error)));
}

// Whether there is more to tell than the answer itself.
export function hasActivity({ details, passed }) {
  return Boolean(details?.steps?.length || details?.handoffs?.length || passed?.length);
}

function summaryOf({ details, passed }, isRunning) {
  const { steps = [], handoffs = [], startedAt, endedAt } = details ?? {};
  const all = steps.length + handoffs.reduce((sum, one) => sum + (one.steps?.length ?? 0), 0);
  const handed = handoffs.length || passed?.length || 0;
  const ends = handoffs.map((one) => one.endedAt).filter(Boolean);
  const end = Math.max(endedAt ?? 0, ...ends);
  const isOver = !isRunning && startedAt && end;
  return [
    all ? `${all} ${all === 1 ? "step" : "steps"}` : "",
    handed ? `${handed} ${handed === 1 ? "hand-off" : "hand-offs"}` : "",
    isOver ? duration(end - startedAt) : "",
    ...usage(details ?? {}),
  ].filter(Boolean).join(" · ");
}

export function activity(message, { isOpen, isRunning, onToggle }) {
  const { details, passed = [] } = message;
  const handoffs = details?.handoffs?.length
    ? element("ol", { class: "handoffs" }, ...details.handoffs.map(handoffItem))
    : element("ol", { class: "handoffs" },
      ...passed.map((text) => element("li", { class: "handoff" }, text)));
  const summary = element("summary", { "data-key": "activity" },
    icon("steps"), element("span", {}, summaryOf(message, isRunning) || "Details"),
    icon("chevronDown", "fold"));
  const node = element("details", { class: "activity", open: isOpen },
    summary,
    details?.agent && details.steps?.length
      ? element("p", { class: "soft small" }, details.agent) : undefined,
    stepList(details?.steps), handoffs);
  node.addEventListener("toggle", () => onToggle(node.open));
  return node;
}
