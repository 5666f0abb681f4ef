// The life of a message: what happened when, the chain of hand-offs, and responses with receipts.

import { element, fold } from "../dom.js";
import { clockWithSeconds, count, duration, money, moment } from "./format.js";
import { badge, card, stateBadge } from "./parts.js";
import { hrefOf } from "./router.js";

const KINDS = {
  received: ["Received", "info"],
  claimed: ["Claimed", "accent"],
  failed: ["Failed", "bad"],
  released: ["Given back", "wait"],
  step: ["Step", ""],
  handoff: ["Handed over", "info"],
  response: ["Answered", "good"],
  completed: ["Completed", "good"],
  dead: ["Dead letter", "bad"],
  expired: ["Expired", "bad"],
  cancelled: ["Cancelled", "wait"],
  discarded: ["Discarded", ""],
};
const STEP_TONES = { done: "good", failed: "bad", started: "accent", unknown: "wait" };

function words(entry) {
  switch (entry.kind) {
    case "received":
      return entry.text ?? "";
    case "claimed":
      return `attempt ${entry.attempt}${entry.worker ? ` by ${entry.worker}` : ""}`;
    case "failed":
      return `attempt ${entry.attempt}`;
    case "step":
      return entry.key;
    case "handoff":
      return element("a", { href: hrefOf("messages", entry.eventId) }, `to ${entry.agent}`);
    case "response":
      return element("a", { href: hrefOf("messages", entry.eventId) }, `by ${entry.channel}`);
    default:
      return entry.worker ? `by ${entry.worker}` : "";
  }
}

// The bar of a step shows where in the life of the message its time was spent.
function stepBar(entry, { from, span }) {
  const end = entry.endedAt ?? from + span;
  const bar = element("span", { class: `step-bar ${STEP_TONES[entry.status] ?? ""}`.trim() });
  bar.style.setProperty("--from", `${(100 * Math.max(0, entry.at - from)) / span}%`);
  bar.style.setProperty("--size", `${Math.max(0.6, (100 * Math.max(0, end - entry.at)) / span)}%`);
  return element("span", { class: "step-track", "aria-hidden": "true" }, bar);
}

function stepFacts(entry) {
  const facts = [
    entry.endedAt ? duration(entry.endedAt - entry.at) : "running",
    entry.tokens === undefined ? "" : `${count(entry.tokens)} tokens`,
    entry.cost === undefined ? "" : money(entry.cost),
    entry.attempt > 1 ? `attempt ${entry.attempt}` : "",
  ].filter(Boolean);
  return [
    badge(entry.status, STEP_TONES[entry.status] ?? ""),
    element("span", { class: "soft small number" }, facts.join(" · ")),
  ];
}

function problem(entry) {
  return [
    entry.error ? element("p", { class: "entry-error", dir: "auto" }, entry.error) : "",
    entry.traceback ? element("details", { class: "trace" }, fold("Traceback"),
      element("pre", { tabindex: "0" }, entry.traceback)) : "",
  ];
}

function entryRow(entry, frame) {
  const [name, tone] = KINDS[entry.kind] ?? [entry.kind, ""];
  return element("li", { class: `entry ${tone}`.trim(), "data-kind": entry.kind },
    element("span", { class: "entry-dot", "aria-hidden": "true" }),
    element("div", { class: "entry-main" },
      element("p", { class: "entry-line" },
        element("strong", {}, name),
        element("span", { class: "entry-words", dir: "auto" }, words(entry)),
        entry.kind === "response" ? stateBadge(entry.state) : "",
        entry.kind === "step" ? stepFacts(entry) : ""),
      entry.kind === "step" ? stepBar(entry, frame) : "",
      problem(entry)),
    element("p", { class: "entry-time soft small number" },
      element("time", { datetime: new Date(entry.at).toISOString(),
        title: new Date(entry.at).toString() },
        clockWithSeconds(entry.at)),
      entry.at > frame.from ? ` +${duration(entry.at - frame.from)}` : ""));
}

export function timelineOf(event) {
  const from = event.receivedAt;
  const last = Math.max(...event.timeline.map((one) => one.endedAt ?? one.at), from + 1);
  const frame = { from, span: (event.finishedAt ?? Math.max(last, Date.now())) - from || 1 };
  return card("Timeline", [
    element("ol", { class: "timeline" }, ...event.timeline.map((entry) => entryRow(entry, frame))),
  ]);
}

function treeNode(node, current) {
  return element("li", {},
    element("a", {
      class: "tree-node", href: hrefOf("messages", node.id),
      "aria-current": node.id === current && "page",
    },
    stateBadge(node.state), element("strong", {}, node.agent),
    element("span", { class: "clip soft", dir: "auto" }, node.message),
    element("span", { class: "soft small number" }, node.finishedAt === null ? ""
      : duration(node.finishedAt - node.receivedAt))),
    node.children.length
      ? element("ul", {}, ...node.children.map((child) => treeNode(child, current))) : "");
}

// The chain of a message that stands alone is the message itself, which the page shows already.
export function treeOf(event) {
  const { tree } = event;
  return tree && (tree.children.length || tree.id !== event.id)
    ? card("Hand-offs", [element("ul", { class: "tree" }, treeNode(tree, event.id))]) : null;
}

function receiptOf({ key, status, receipt }) {
  const shown = typeof receipt === "string" ? receipt : JSON.stringify(receipt ?? null);
  return element("li", {}, badge(status, status === "sent" ? "good" : "wait"),
    element("code", {}, key), receipt === null || receipt === undefined ? ""
      : element("code", { class: "soft" }, shown));
}

export function responsesOf({ responses }) {
  return responses.length ? card("Responses", responses.map((response) => element(
    "article", { class: "response" },
    element("p", { class: "soft small" },
      stateBadge(response.state), ` ${response.agent} on ${response.channel} · `,
      moment(response.receivedAt), " · ",
      element("a", { href: hrefOf("messages", response.id) }, `event ${response.id}`)),
    element("p", { class: "text", dir: "auto" }, response.message),
    response.parts.length
      ? element("ul", { class: "receipts", "aria-label": "Receipts" },
        ...response.parts.map(receiptOf))
      : "",
  ))) : null;
}
