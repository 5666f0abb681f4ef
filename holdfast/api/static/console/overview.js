// The overview: what needs a person, how the queues move, who works on what, and what is unhealthy.

import { ask } from "../ask.js";
import { element } from "../dom.js";
import { icon } from "../icons.js";
import { chart, sparkline } from "./charts.js";
import {
  compact, count, duration, elapsed, moment, percent, plural, rate,
} from "./format.js";
import { pauseButton } from "./pause.js";
import {
  badge, card, empty, updateRows, segments, showOnly, skeleton, table, tableRow, scrollBox,
} from "./parts.js";
import { hrefOf } from "./router.js";

export const FOLLOWED = [
  "message_received", "chain_step_start", "chain_step_done", "response_ready", "message_failed",
  "progress", "paused", "resumed", "processor_start",
];
const WINDOWS = [["hour", "Hour"], ["day", "Day"], ["week", "Week"]];
const SEVERITY = { high: "bad", medium: "wait", low: "info" };
const ICONS = {
  database: "memory", channel: "messages", unserved: "agents", effect_unknown: "warning",
  dead: "dead", approval: "check", waiting: "clock", provider: "agents", memory: "memory",
  pairing: "key", paused: "pause",
};
const STATUS = { ok: "good", warning: "wait", failing: "bad", unknown: "" };
const QUEUES = [
  { name: "Queue" }, { name: "Ready", kind: "number" }, { name: "Behind", kind: "number" },
  { name: "Delayed", kind: "number" }, { name: "Working", kind: "number" },
  { name: "Dead", kind: "number" }, { name: "In / min", kind: "number" },
  { name: "Done / min", kind: "number" }, { name: "Failed / min", kind: "number" },
  { name: "Oldest waits", kind: "number" }, { name: "Actions", hidden: true, kind: "actions" },
];

export function attentionRow(one) {
  return element("li", { class: `attention ${SEVERITY[one.severity] ?? ""}`.trim() },
    element("a", { href: one.link },
      element("span", { class: "attention-icon" }, icon(ICONS[one.kind] ?? "warning")),
      element("span", { class: "attention-text", dir: "auto" }, one.text),
      one.count > 1 && !one.text.startsWith(String(one.count))
        ? badge(compact(one.count), SEVERITY[one.severity]) : "",
      element("span", { class: "attention-since soft small" },
        one.since === null ? "" : moment(one.since)),
      icon("chevronRight")));
}

function tile({ name, value, more, line, tone = "", href }) {
  const body = [
    element("span", { class: "tile-name" }, name),
    element("span", { class: `tile-value number ${tone}`.trim() }, value),
    element("span", { class: "tile-more soft small number" }, more),
    line ? sparkline(...line, tone === "bad" ? "tone-4" : "tone-1") : "",
  ];
  return href ? element("a", { class: "tile card", href }, ...body)
    : element("div", { class: "tile card" }, ...body);
}

// Delayed messages wait for their time or a signal, and nobody has to hurry.
export function oldestOf(waiting, oldestAt) {
  if (oldestAt === null) {
    return waiting ? "until their time" : "nobody waits";
  }
  return element("span", {}, "oldest ", elapsed(oldestAt));
}

export function tilesOf({ queues }, { buckets, total }) {
  const inbox = queues.find((one) => one.queue === "inbox");
  const waiting = inbox.ready + inbox.queued + inbox.delayed;
  const dead = queues.reduce((sum, one) => sum + one.dead, 0);
  const ended = total.completed + total.failed;
  return [
    tile({
      name: "Waiting", value: compact(waiting), href: "/console/messages?state=pending",
      more: oldestOf(waiting, inbox.oldestWaitingAt),
    }),
    tile({
      name: "Working", value: compact(inbox.processing), href: "/console/messages?state=processing",
      more: `${rate(inbox.completedPerMinute)} done a minute`,
    }),
    tile({
      name: "Received", value: compact(total.received), line: [buckets, (one) => one.received],
      more: `${rate(inbox.receivedPerMinute)} a minute now`,
    }),
    tile({
      name: "Time to answer", value: duration(total.p50), line: [buckets, (one) => one.p50],
      more: `p95 ${duration(total.p95)}`,
    }),
    tile({
      name: "Failed", value: ended ? percent(total.failed / ended) : "–",
      tone: total.failed ? "bad" : "", line: [buckets, (one) => one.failed],
      more: `${count(total.failed)} of ${compact(ended)}`,
    }),
    tile({
      name: "Dead letters", value: compact(dead), tone: dead ? "bad" : "", href: "/console/dead",
      more: dead ? "wait for a person" : "none",
    }),
  ];
}

function chartsOf({ buckets, total }) {
  const points = buckets;
  return [
    chart({
      title: "Throughput", points, summary: `${compact(total.received)} received`,
      series: [
        { name: "received", tone: "tone-2", of: (one) => one.received, draw: "area" },
        { name: "completed", tone: "tone-1", of: (one) => one.completed },
      ],
    }),
    chart({
      title: "Time to answer", points, isDuration: true,
      summary: `p50 ${duration(total.p50)}, p95 ${duration(total.p95)}`,
      series: [
        { name: "p95", tone: "tone-3", of: (one) => one.p95 },
        { name: "p50", tone: "tone-1", of: (one) => one.p50 },
      ],
    }),
    chart({
      title: "Failures", points, least: 4, summary: `${count(total.failed)} failed`,
      series: [{ name: "failed", tone: "tone-4", of: (one) => one.failed, draw: "bars" }],
    }),
  ];
}

function queueRow(page, refresh) {
  return (one) => tableRow(QUEUES, [
    [element("strong", {}, one.queue), " ", one.paused ? badge("paused", "wait") : ""],
    count(one.ready), count(one.queued), count(one.delayed), count(one.processing),
    one.dead ? element("a",
      { class: "bad-link", href: `/console/dead?queue=${encodeURIComponent(one.queue)}` },
      count(one.dead)) : "0",
    rate(one.receivedPerMinute), rate(one.completedPerMinute), rate(one.failedPerMinute),
    elapsed(one.oldestWaitingAt),
    pauseButton(page.session, { kind: "queue", name: one.queue, paused: one.paused, refresh }),
  ]);
}

function workRow(work) {
  return element("li", { class: "work" },
    element("a", { class: "clip", href: hrefOf("messages", work.eventId) },
      `${work.agent ?? work.queue}: ${work.progress ?? work.messageId ?? `event ${work.eventId}`}`),
    elapsed(work.since));
}

export function workerRow(worker) {
  const hidden = worker.turns - worker.now.length;
  return element("li", { class: "worker" },
    element("p", { class: "worker-head" },
      element("span", { class: `lamp ${worker.turns ? "accent" : "good"}` }),
      element("strong", { class: "clip" }, worker.process),
      badge(worker.version ?? "before 0.8.0"),
      element("span", { class: "soft small" }, worker.turns
        ? plural(worker.turns, "turn") : "idle", " · up ", elapsed(worker.startedAt))),
    element("p", { class: "soft small clip" }, [
      worker.agents.length && `agents ${worker.agents.join(", ")}`,
      worker.channels.length && `channels ${worker.channels.join(", ")}`,
    ].filter(Boolean).join(" · ") || "serves the API"),
    worker.now.length ? element("ul", { class: "works" }, ...worker.now.map(workRow)) : "",
    hidden > 0 ? element("p", { class: "soft small" }, `and ${count(hidden)} more`) : "");
}

function healthRow(name, status, text, detail) {
  return element("li", { class: "health" },
    element("span", { class: `lamp ${STATUS[status] ?? ""}`.trim() }),
    element("strong", {}, name), badge(status, STATUS[status]),
    element("span", { class: "soft small", dir: "auto" }, text),
    detail ? element("p", { class: "entry-error small", dir: "auto" }, detail) : "");
}

export function healthRows({ database, channels, providers, memory }) {
  return [
    healthRow("Database", database.status, [database.engine, database.timescale
      && `TimescaleDB ${database.timescale}`,
      `${database.milliseconds} ms`].filter(Boolean).join(" · ")),
    healthRow("Memory", memory.status, memory.pending
      ? `${count(memory.pending)} changes behind` : "index is up to date"),
    ...channels.map((one) => healthRow(one.channel, one.status,
      one.processes.length ? `channel, ${plural(one.processes.length, "process", "processes")}`
        : "channel, no process", one.problems.join(" "))),
    ...providers.map((one) => healthRow(one.provider, one.status,
      `provider of ${one.agents.join(", ")}`, one.lastError)),
  ];
}

class Overview {
  constructor(page) {
    this.page = page;
    this.window = WINDOWS.some(([id]) => id === page.query.get("window"))
      ? page.query.get("window") : "hour";
    this.attention = element("ul", { class: "attentions" });
    this.needs = element("div", {}, skeleton(2));
    this.tiles = element("div", { class: "tiles" });
    this.charts = element("div", { class: "charts" });
    this.queues = table("Queues", QUEUES);
    this.workers = element("ul", { class: "workers" });
    this.workersBox = element("div", {}, skeleton(3));
    this.health = element("ul", { class: "healths" });
    this.state = page.follow({ types: FOLLOWED, every: 5000, work: () => this.loadState() });
    this.stats = page.follow({
      types: ["response_ready", "message_failed"], interval: 10000, every: 30000,
      work: () => this.loadStats(),
    });
  }

  async loadState() {
    this.overview = await ask("/api/overview");
    const { attention, queues, workers, health } = this.overview;
    updateRows(this.attention, attention, (one) => `${one.kind} ${one.link} ${one.text}`,
      attentionRow);
    this.needsTitle.textContent = attention.length
      ? `Needs a person (${count(attention.length)})` : "Needs a person";
    showOnly(this.needs, attention.length ? this.attention : this.nothing);
    updateRows(this.queues.body, queues, (one) => one.queue,
      queueRow(this.page, () => this.state.now()));
    updateRows(this.workers, workers, (one) => one.process, workerRow);
    showOnly(this.workersBox, workers.length ? this.workers : this.noWorkers);
    this.health.replaceChildren(...healthRows(health));
    this.#showTiles();
  }

  async loadStats() {
    this.numbers = await ask(`/api/stats?window=${this.window}`);
    this.#showTiles();
    if (!this.charts.querySelector("details[open]")) {
      this.charts.replaceChildren(...chartsOf(this.numbers));
    }
  }

  #showTiles() {
    if (this.overview && this.numbers) {
      const content = JSON.stringify([this.overview.queues, this.numbers.total]);
      if (content !== this.tilesContent) {
        this.tilesContent = content;
        this.tiles.replaceChildren(...tilesOf(this.overview, this.numbers));
      }
    }
  }

  show() {
    this.nothing = element("p", { class: "all-good" }, icon("check"),
      "Nothing needs you. Messages are answered, channels are up, nobody waits for a decision.");
    this.noWorkers = empty("No process is running",
      "Messages are stored and wait. Start one with holdfast up or holdfast work.",
      { icon: "agents" });
    const needs = card("Needs a person", [this.needs], { class: "needs" });
    this.needsTitle = needs.querySelector("h2");
    this.page.body.replaceChildren(element("div", { class: "stack" },
      needs, this.tiles, this.charts,
      card("Queues", [scrollBox(this.queues.node)], { class: "flush" }),
      element("div", { class: "halves" },
        card("Workers", [this.workersBox]), card("Health", [this.health]))));
  }
}

export async function open(page) {
  const overview = new Overview(page);
  page.head("Overview", { actions: [
    segments("Window of the charts", WINDOWS, overview.window, (value) => {
      overview.window = value;
      page.note({ window: value === "hour" ? "" : value });
      overview.stats.now();
    }),
    element("a", { class: "button small ghost", href: "/status" }, icon("monitor"), "Wall"),
  ] });
  overview.show();
  await Promise.all([overview.state.first(), overview.stats.first()]);
}
