// One agent: its charts, the lanes it works on, who serves it, and its latest messages.

import { ask, askPage } from "../ask.js";
import { element } from "../dom.js";
import { agentNumbers, FOLLOWED, NONE, successBadge } from "./agents.js";
import { chart } from "./charts.js";
import { compact, count, duration, elapsed, money } from "./format.js";
import { messageRow } from "./messages.js";
import { pauseButton, pausedNote } from "./pause.js";
import {
  badge, card, definitions, empty, updateRows, segments, showOnly, table, scrollBox,
} from "./parts.js";
import { hrefOf } from "./router.js";

const WINDOWS = [["hour", "Hour"], ["day", "Day"], ["week", "Week"]];
const LATEST = [
  { name: "State" }, { name: "Message", kind: "wide" }, { name: "Agent" },
  { name: "Received" }, { name: "Time", kind: "number" }, { name: "Attempts", kind: "number" },
];

function laneRow(lane) {
  return element("li", { class: "work" },
    element("a", { class: "clip", href: hrefOf("messages", lane.eventId), dir: "auto" },
      lane.lane ?? `event ${lane.eventId}`),
    element("span", { class: "soft small clip" }, lane.worker ?? ""), elapsed(lane.since));
}

function factsOf(stats) {
  return definitions([
    ["Working", stats.limit ? `${count(stats.processing)} of ${count(stats.limit)}`
      : count(stats.processing)],
    ["Waiting", compact(stats.pending)],
    ["Done", compact(stats.completed)],
    ["Failed", compact(stats.failed)],
    ["Success", successBadge(stats)],
    ["Time to answer", `p50 ${duration(stats.p50)}, p95 ${duration(stats.p95)}`],
    ["Tokens", stats.tokens ? compact(stats.tokens) : "–"],
    ["Cost", stats.cost ? money(stats.cost) : "–"],
  ]);
}

function servers({ processes }) {
  if (!processes.length) {
    return empty("Nobody serves it", "Its messages are stored and wait.", { icon: "agents" });
  }
  const rows = processes.map((one) => element("li", { class: "work" },
    element("span", { class: "clip" }, one.process),
    "version" in one ? badge(one.version ?? "before 0.8.0") : ""));
  return element("ul", { class: "works" }, ...rows);
}

class AgentPage {
  constructor(page) {
    this.page = page;
    this.name = page.params.agent;
    this.window = page.query.get("window") ?? "day";
    this.charts = element("div", { class: "charts" });
    this.facts = element("div");
    this.lanes = element("ul", { class: "works" });
    this.lanesBox = element("div");
    this.served = element("div");
    this.latest = table("Latest messages", LATEST);
    this.refresher = page.follow({ types: FOLLOWED, every: 10000, work: () => this.load(),
      wants: (frame) => !frame.agent || frame.agent === this.name });
  }

  async load() {
    const query = new URLSearchParams({ window: this.window, agent: this.name });
    const [agents, all, numbers, { rows }] = await Promise.all([
      ask("/api/agents"), agentNumbers(this.window),
      ask(`/api/stats?${query}`),
      askPage(`/api/messages?${new URLSearchParams({ agent: this.name, limit: 20 })}`),
    ]);
    const agent = agents[this.name];
    if (!agent) {
      throw Object.assign(new Error(`No agent ${this.name} is known.`), { status: 404 });
    }
    const processes = agent.processes.map((process) => ({ process }));
    const stats = { ...NONE, processes, ...all[this.name] };
    this.#showHead(agent, agent.paused ?? null);
    this.facts.replaceChildren(factsOf(stats));
    updateRows(this.lanes, stats.lanes, (one) => one.eventId, laneRow);
    showOnly(this.lanesBox, stats.lanes.length ? this.lanes : this.idle);
    this.served.replaceChildren(servers(stats));
    updateRows(this.latest.body, rows, (one) => one.id, messageRow);
    this.#showCharts(numbers);
  }

  #showHead(agent, paused) {
    const content = JSON.stringify([agent, paused]);
    if (content === this.headContent) {
      return;
    }
    this.headContent = content;
    this.page.head(agent.name, {
      lead: agent.description || agent.kind || "",
      actions: [
        segments("Window of the numbers", WINDOWS, this.window, (value) => {
          this.window = value;
          this.page.note({ window: value === "day" ? "" : value });
          this.refresher.now();
        }),
        element("a", {
          class: "button small", href: `/console/dead?agent=${encodeURIComponent(this.name)}`,
        }, "Dead letters"),
        pauseButton(this.page.session, {
          kind: "agent", name: this.name, paused, refresh: () => this.refresher.now(),
        }),
      ],
    });
    this.note.replaceChildren(pausedNote(paused));
  }

  #showCharts({ buckets }) {
    if (this.charts.querySelector("details[open]")) {
      return;
    }
    this.charts.replaceChildren(
      chart({
        title: "Completed and failed", points: buckets, series: [
          { name: "completed", tone: "tone-1", of: (one) => one.completed, draw: "area" },
          { name: "failed", tone: "tone-4", of: (one) => one.failed, draw: "bars" },
        ],
      }),
      chart({
        title: "Time to answer", points: buckets, isDuration: true, series: [
          { name: "p95", tone: "tone-3", of: (one) => one.p95 },
          { name: "p50", tone: "tone-1", of: (one) => one.p50 },
        ],
      }),
    );
  }

  show() {
    this.note = element("div");
    this.idle = empty("Idle", "It works on nothing right now.", { icon: "clock" });
    this.page.body.replaceChildren(element("div", { class: "stack" },
      this.note, this.charts,
      element("div", { class: "thirds" },
        card("Numbers", [this.facts]), card("Lanes in progress", [this.lanesBox]),
        card("Served by", [this.served])),
      card("Latest messages", [scrollBox(this.latest.node)], { class: "flush" })));
  }
}

export async function open(page) {
  const agent = new AgentPage(page);
  page.head(agent.name);
  agent.show();
  await agent.refresher.first();
}
