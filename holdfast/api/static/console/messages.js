// Messages: a live list of everything that came in, newest first, with filters in the address.

import { ask, askPage } from "../ask.js";
import { element } from "../dom.js";
import { EndlessList } from "./endless.js";
import { filterBar, suggestions } from "./filters.js";
import { count, duration, elapsed, moment, plural } from "./format.js";
import { badge, card, empty, withLabel, stateBadge, table, tableRow, scrollBox } from "./parts.js";
import { hrefOf } from "./router.js";

const PAGE = 50;
const FOLLOWED = [
  "message_received", "chain_step_start", "chain_step_done", "chain_handoff", "response_ready",
  "message_failed", "paused", "resumed",
];
const COLUMNS = [
  { name: "State" }, { name: "Message", kind: "wide" }, { name: "Agent" },
  { name: "Received" }, { name: "Time", kind: "number" }, { name: "Attempts", kind: "number" },
];
const PERIODS = { "15m": 900000, "1h": 3600000, "1d": 86400000, "7d": 604800000 };
const FILTERS = [
  { name: "text", label: "Text", placeholder: "part of the message", isWide: true },
  { name: "agent", label: "Agent", placeholder: "any", list: "known-agents" },
  { name: "channel", label: "Channel", placeholder: "any", list: "known-channels" },
  { name: "sender", label: "Sender", placeholder: "name or id" },
  {
    name: "state", label: "State", options: [["", "any"], ["pending", "waiting"],
      ["processing", "processing"], ["waiting", "waiting for a signal"],
      ["completed", "completed"], ["dead", "dead"]],
  },
  {
    name: "outcome", label: "Outcome", options: [["", "any"], ["completed", "completed"],
      ["dead", "dead"], ["expired", "expired"], ["cancelled", "cancelled"]],
  },
  {
    name: "time", label: "Received", options: [["", "any time"], ["15m", "last 15 minutes"],
      ["1h", "last hour"], ["1d", "last day"], ["7d", "last week"], ["custom", "between…"]],
  },
];

function sinceAndUntil(query) {
  const period = query.get("time");
  if (PERIODS[period]) {
    return { since: Date.now() - PERIODS[period] };
  }
  const moments = ["since", "until"].map((name) => [name, Date.parse(query.get(name) ?? "")]);
  return period === "custom"
    ? Object.fromEntries(moments.filter(([, value]) => !Number.isNaN(value))) : {};
}

export function addressOf(page, further) {
  const values = { limit: PAGE, ...sinceAndUntil(page.query), ...further };
  for (const { name } of FILTERS) {
    if (name !== "time") {
      values[name] = page.query.get(name);
    }
  }
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined
    && value !== "");
  return `/api/messages?${new URLSearchParams(given)}`;
}

function stateOf(message) {
  const isOver = message.state === "dead" && message.outcome !== "dead";
  return [
    stateBadge(isOver ? message.outcome : message.state),
    message.paused ? badge("paused", "wait") : "",
  ];
}

export function messageRow(message) {
  const isLive = message.finishedAt === null;
  return tableRow(COLUMNS, [
    stateOf(message),
    [
      element("a", {
        class: "row-link", href: hrefOf("messages", message.id), dir: "auto",
        "aria-label": `Message ${message.id}: ${message.message}`,
      }, message.message || "(no text)"),
      element("p", { class: "soft small clip" },
        element("span", { dir: "auto" }, message.sender || "–"), ` · ${message.channel}`,
        message.hops ? ` · handed over ${plural(message.hops, "time")}` : ""),
      message.error ? element("p", { class: "row-error small clip", dir: "auto" }, message.error)
        : "",
    ],
    element("span", { class: "clip agent-name" }, message.agent),
    moment(message.receivedAt),
    isLive ? elapsed(message.receivedAt) : duration(message.duration),
    message.attempts > 1 ? badge(count(message.attempts), "wait") : count(message.attempts),
  ], { "data-id": message.id });
}

// Exact bounds, for the choice "between". They are kept in the address, too.
function customTimes(page, onChange) {
  const box = element("div", { class: "fields between" }, ...["since", "until"].map((name) => {
    const input = element("input", {
      type: "datetime-local", class: "input", onchange: () => {
        page.note({ [name]: input.value });
        onChange();
      },
    });
    input.value = page.query.get(name) ?? "";
    return withLabel(name === "since" ? "From" : "Until", input);
  }));
  const show = () => { box.hidden = page.query.get("time") !== "custom"; };
  show();
  return { box, show };
}

// A button that says how much came while the reader was further down.
function newPill(page) {
  let missed = 0;
  const pill = element("button", {
    type: "button", class: "button primary new-pill", hidden: true, onclick: () => {
      page.body.scrollTo({ top: 0, behavior: "smooth" });
      pill.hidden = true;
    },
  });
  page.body.addEventListener("scroll", () => {
    if (page.body.scrollTop < 80) {
      pill.hidden = true;
      missed = 0;
    }
  }, { signal: page.signal, passive: true });
  return {
    pill,
    add: (number) => {
      if (number > 0 && page.body.scrollTop > 200) {
        missed += number;
        pill.textContent = `${plural(missed, "new message")}`;
        pill.hidden = false;
      }
    },
  };
}

async function addSuggestions(box) {
  const [agents, overview] = await Promise.all([
    ask("/api/agents").catch(() => ({})), ask("/api/status").catch(() => ({ channels: {} })),
  ]);
  box.replaceChildren(
    suggestions("known-agents", Object.keys(agents)),
    suggestions("known-channels", ["api", "web", ...Object.keys(overview.channels)]),
  );
}

function hint(page) {
  const isFiltered = [...page.query.keys()].length > 0;
  return isFiltered
    ? empty("Nothing matches", "No message matches these filters.", { icon: "search" })
    : empty("No messages yet", "What people and programs send to agents appears here at once.",
      { icon: "messages" });
}

export async function open(page) {
  const { node, body: rows } = table("Messages, newest first", COLUMNS);
  page.head("Messages", { lead: "Everything that came in, newest first" });
  const { pill, add } = newPill(page);
  const list = new EndlessList({
    page, rows, shown: scrollBox(node), build: messageRow, key: (one) => one.id,
    load: (before) => askPage(addressOf(page, { before_id: before })), hint: () => hint(page),
  });
  const times = customTimes(page, () => list.restart());
  const bar = filterBar(page, FILTERS, () => {
    times.show();
    list.restart();
  });
  const names = element("div");
  page.body.replaceChildren(names, element("div", { class: "stack" }, bar, times.box,
    card("Newest first", [list.node], { class: "flush no-head" }), pill));
  page.follow({ types: FOLLOWED, every: 15000, work: async () => {
    if (!list.hasStarted) {
      await list.restart();
    } else if (!list.isLoading) {
      add(list.merge(await askPage(addressOf(page))));
    }
  } });
  addSuggestions(names);
  await list.restart();
}
