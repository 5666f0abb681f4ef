// The status page for a screen on the wall: a headline, a few large numbers, and what needs a
// person.

import { ask } from "../ask.js";
import { byId, element } from "../dom.js";
import { chart } from "./charts.js";
import { clock, compact, duration, percent, plural,
  rate } from "./format.js";
import { FrameSource } from "./frames.js";
import { Refresher } from "./live.js";
import { attentionRow, FOLLOWED, oldestOf } from "./overview.js";
import { failure, showOnly } from "./parts.js";

const LINES = { live: "", away: "The server is away. Numbers are old.", connecting: "Connecting" };
const SHOWN = 6;
// Charts take the part of the screen that the rest leaves.
const CHART_SHARE = 0.27;

// The number of entries in the list below. The most severe one gives the text and the colour.
function headlineOf(attention) {
  const has = (severity) => attention.some((one) => one.severity === severity);
  if (has("high")) {
    return ["bad", `${plural(attention.length, "thing needs", "things need")} a person`];
  }
  return has("medium") ? ["wait", `${plural(attention.length, "thing", "things")} to look at`]
    : ["good", "All is well"];
}

function figure(name, value, more, tone = "") {
  return element("div", { class: `figure ${tone}`.trim() },
    element("span", { class: "figure-name" }, name),
    element("span", { class: "figure-value number" }, value),
    element("span", { class: "figure-more number" }, more));
}

function figures({ queues, workers }, { total }) {
  const inbox = queues.find((one) => one.queue === "inbox");
  const waiting = inbox.ready + inbox.queued + inbox.delayed;
  const dead = queues.reduce((sum, one) => sum + one.dead, 0);
  const ended = total.completed + total.failed;
  return [
    figure("Waiting", compact(waiting), oldestOf(waiting, inbox.oldestWaitingAt)),
    figure("Working", compact(inbox.processing), plural(workers.length, "process", "processes")),
    figure("Per minute", rate(inbox.completedPerMinute),
      `${compact(total.completed)} answered`),
    figure("Time to answer", duration(total.p50), `p95 ${duration(total.p95)}`),
    figure("Failed", ended ? percent(total.failed / ended) : "–",
      `${compact(total.failed)} this hour`,
      total.failed ? "bad" : ""),
    figure("Dead letters", compact(dead), dead ? "wait for a person" : "none", dead ? "bad" : ""),
  ];
}

function lamps({ database, channels, providers, memory }) {
  const all = [
    ["Database", database.status], ["Memory", memory.status],
    ...channels.map((one) => [one.channel, one.status]),
    ...providers.map((one) => [one.provider, one.status]),
  ];
  const tone = { ok: "good", warning: "wait", failing: "bad" };
  return element("ul", { class: "wall-lamps", "aria-label": "Health" },
    ...all.map(([name, status]) => (
    element("li", {}, element("span", { class: `lamp ${tone[status] ?? ""}`.trim() }), name,
      element("span", { class: "hidden-text" }, ` ${status}`)))));
}

function charts({ buckets }) {
  const height = Math.max(150, Math.round(innerHeight * CHART_SHARE));
  return element("div", { class: "charts" },
    chart({
      title: "Throughput of the last hour", points: buckets, height, series: [
        { name: "received", tone: "tone-2", of: (one) => one.received, draw: "area" },
        { name: "completed", tone: "tone-1", of: (one) => one.completed },
        { name: "failed", tone: "tone-4", of: (one) => one.failed, draw: "bars" },
      ],
    }),
    chart({
      title: "Time to answer", points: buckets, height, isDuration: true, series: [
        { name: "p95", tone: "tone-3", of: (one) => one.p95 },
        { name: "p50", tone: "tone-1", of: (one) => one.p50 },
      ],
    }));
}

function needs(attention) {
  const more = attention.length - SHOWN;
  return attention.length
    ? element("section", { class: "wall-needs", "aria-label": "Needs a person" },
    element("ul", { class: "attentions" }, ...attention.slice(0, SHOWN).map(attentionRow)),
    more > 0 ? element("p", { class: "soft" }, `and ${more} more`) : "") : "";
}

async function load() {
  const [overview, stats] = await Promise.all([ask("/api/overview"),
    ask("/api/stats?window=hour")]);
  const [tone, text] = headlineOf(overview.attention);
  if (byId("headline").textContent !== text) {
    byId("headline").textContent = text;
  }
  document.body.dataset.tone = tone;
  document.title = `${text} · Holdfast`;
  byId("wall").replaceChildren(...[
    element("div", { class: "figures" }, ...figures(overview, stats)),
    needs(overview.attention), charts(stats), lamps(overview.health),
  ].filter(Boolean));
}

function showFailure(error) {
  if (error.status) {
    byId("headline").textContent = "Not available";
    document.body.dataset.tone = "bad";
    showOnly(byId("wall"), failure(error));
  }
}

function showClock() {
  byId("clock").textContent = clock(Date.now());
}

async function start() {
  showClock();
  setInterval(showClock, 1000);
  const leaving = new AbortController();
  const refresher = new Refresher({
    work: load, interval: 2000, every: 5000, signal: leaving.signal, onError: showFailure,
  });
  const frames = new FrameSource((state) => {
    byId("line").textContent = LINES[state] ?? "";
    document.body.dataset.line = state;
  });
  frames.add({ types: new Set(FOLLOWED), wants: () => true, refresher }, leaving.signal);
  frames.open();
  await refresher.now();
}

start();
