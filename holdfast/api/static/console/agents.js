// Agents and teams: their load, success, latency and cost, pauses, rooms, and who serves them.

import { ask } from "../ask.js";
import { avatar, element } from "../dom.js";
import { icon } from "../icons.js";
import { compact, count, duration, elapsed, money, percent, plural } from "./format.js";
import { pauseButton, pausedBadge, pausedNote } from "./pause.js";
import {
  badge, card, empty, updateRows, roleNote, segments, showOnly, table, tableRow, scrollBox,
} from "./parts.js";
import { hrefOf } from "./router.js";

export const FOLLOWED = [
  "message_received", "chain_step_start", "chain_step_done", "message_failed", "paused", "resumed",
  "processor_start",
];
const WINDOWS = [["hour", "Hour"], ["day", "Day"], ["week", "Week"]];
const COLUMNS = [
  { name: "Agent", kind: "wide" }, { name: "Working", kind: "number" },
  { name: "Waiting", kind: "number" }, { name: "Done", kind: "number" },
  { name: "Success", kind: "number" }, { name: "p50", kind: "number" },
  { name: "p95", kind: "number" }, { name: "Cost", kind: "number" }, { name: "Served by" },
  { name: "Actions", hidden: true, kind: "actions" },
];
const PROCESSES = [
  { name: "Process" }, { name: "Host" }, { name: "Version" }, { name: "Up", kind: "number" },
  { name: "Agents", kind: "wide" }, { name: "Channels" }, { name: "Turns", kind: "number" },
];
export const NONE = {
  pending: 0, queued: 0, processing: 0, completed: 0, failed: 0, success: null, p50: null,
  p95: null,
  cost: null, lanes: [], processes: [],
};

export function successBadge({ success, failed }) {
  if (success === null) {
    return "–";
  }
  const tone = success < 0.9 ? "bad" : "wait";
  return failed && success < 0.99 ? badge(percent(success), tone) : percent(success);
}

function servedBy({ processes }) {
  const known = processes.filter((one) => "version" in one);
  const versions = [...new Set(known.map((one) => one.version ?? "before 0.8.0"))];
  return processes.length
    ? [plural(processes.length, "process", "processes"), " ", ...versions.map((one) => badge(one))]
    : badge("nobody", "bad");
}

function agentRow(page, refresh) {
  return (one) => tableRow(COLUMNS, [
    element("div", { class: "agent-cell" }, avatar(one.name, one.id),
      element("div", { class: "agent-words" },
        element("p", {},
          element("a", { class: "row-link", href: hrefOf("agents", one.id), dir: "auto" },
            one.name),
          one.default ? badge("default", "accent") : "", pausedBadge(one.paused)),
        element("p", { class: "soft small clip", dir: "auto" }, one.description || one.kind || ""),
        pausedNote(one.paused))),
    one.limit ? `${count(one.processing)} of ${count(one.limit)}` : count(one.processing),
    one.pending ? badge(compact(one.pending), "info") : "0",
    compact(one.completed), successBadge(one), duration(one.p50), duration(one.p95),
    one.cost ? money(one.cost) : "–", servedBy(one),
    pauseButton(page.session, { kind: "agent", name: one.id, paused: one.paused, refresh }),
  ]);
}

// The names of agents by id.
export function namesOf(agents, ids) {
  return Object.fromEntries(ids.map((id) => [id, agents[id]?.name ?? id]));
}

function teamCard(team) {
  const member = (agent) => element("li", {}, avatar(team.names[agent], agent),
    team.names[agent], agent === team.leader ? badge("leads", "accent") : "");
  return element("li", { class: "card team" },
    element("h3", { dir: "auto" }, team.name),
    element("p", { class: "soft small", dir: "auto" }, team.description || team.id),
    element("ul", { class: "members", "aria-label": `Members of ${team.name}` },
      ...team.agents.map(member)),
    element("a", { class: "button small", href: hrefOf("teams", team.id) }, icon("chat"),
      "Open the room", element("span", { class: "hidden-text" }, ` of ${team.name}`)));
}

function processRow(one) {
  return tableRow(PROCESSES, [
    element("strong", {}, one.process), one.host, badge(one.version ?? "before 0.8.0"),
    elapsed(one.startedAt), one.agents.join(", ") || "–", one.channels.join(", ") || "–",
    count(one.turns),
  ]);
}

function lampOf({ paused, status }) {
  const tone = paused ? "wait" : status === "ok" ? "good" : "bad";
  return element("span", { class: `lamp ${tone}` });
}

function channelRow(page, refresh) {
  return (one) => element("li", { class: "health" }, lampOf(one),
    element("strong", {}, one.channel), pausedBadge(one.paused),
    element("span", { class: "soft small" }, plural(one.processes.length, "process", "processes")),
    element("span", { class: "push" },
      pauseButton(page.session,
        { kind: "channel", name: one.channel, paused: one.paused, refresh })),
    pausedNote(one.paused),
    one.problems.length ? element("p", { class: "entry-error small" }, one.problems.join(" "))
      : "");
}

class Agents {
  constructor(page) {
    this.page = page;
    this.window = page.query.get("window") ?? "day";
    this.agents = table("Agents", COLUMNS);
    this.agentsBox = element("div");
    this.teams = element("ul", { class: "teams" });
    this.channels = element("ul", { class: "healths" });
    this.queues = element("ul", { class: "healths" });
    this.processes = table("Processes", PROCESSES);
    this.refresher = page.follow({ types: FOLLOWED, every: 10000, work: () => this.load() });
  }

  async load() {
    const [agents, stats, teams, overview, pauses] = await Promise.all([
      ask("/api/agents"), agentNumbers(this.window), ask("/api/teams"),
      ask("/api/overview").catch(ignoreForbidden), ask("/api/pauses"),
    ]);
    const refresh = () => this.refresher.now();
    const rows = Object.entries(agents).map(([id, one]) => ({
      ...NONE, ...one, processes: one.processes.map((process) => ({ process })), ...stats[id], id,
      paused: one.paused ?? null,
    }));
    updateRows(this.agents.body, rows, (one) => one.id, agentRow(this.page, refresh));
    showOnly(this.agentsBox, rows.length ? this.wrappedAgents : this.noAgents);
    const teamRows = Object.entries(teams).map(([id, one]) => (
      { id, ...one, names: namesOf(agents, one.agents) }));
    updateRows(this.teams, teamRows, (one) => one.id, teamCard);
    this.teamsCard.hidden = !Object.keys(teams).length;
    this.#showRest(overview, pauses, refresh);
  }

  #showRest(overview, pauses, refresh) {
    const pausedOf = (kind, name) => (
      pauses.find((one) => one.kind === kind && one.name === name) ?? null);
    this.rest.hidden = !overview;
    if (overview) {
      updateRows(this.processes.body, overview.workers, (one) => one.process, processRow);
      updateRows(this.channels, overview.health.channels.map((one) => (
        { ...one, paused: pausedOf("channel", one.channel) })), (one) => one.channel,
      channelRow(this.page, refresh));
      updateRows(this.queues, overview.queues.map(({ queue, paused }) => ({
        channel: queue, kind: "queue", status: "ok", processes: [], problems: [],
        paused: paused ? pausedOf("queue", queue) ?? {} : null,
      })), (one) => one.channel, queueRow(this.page, refresh));
    }
  }

  show() {
    this.wrappedAgents = scrollBox(this.agents.node);
    this.noAgents = empty("No agents",
      "Start a process with holdfast up or holdfast work; its agents"
      + " appear here while it lives.", { icon: "agents" });
    this.teamsCard = element("section", { "aria-labelledby": "teams-title", hidden: true },
      element("h2", { id: "teams-title", class: "section-title" }, "Teams"), this.teams);
    this.rest = element("div", { class: "stack" },
      element("div", { class: "halves" }, card("Channels", [this.channels]),
        card("Queues", [this.queues])),
      card("Processes", [scrollBox(this.processes.node)], { class: "flush" }));
    this.page.body.replaceChildren(element("div", { class: "stack" },
      roleNote(this.page.session, "admin", "Pausing and resuming:"),
      card("Agents", [this.agentsBox], { class: "flush" }), this.teamsCard, this.rest));
  }
}

function queueRow(page, refresh) {
  return (one) => element("li", { class: "health" },
    lampOf(one), element("strong", {}, one.channel), pausedBadge(one.paused),
    element("span", { class: "push" },
      pauseButton(page.session, { kind: "queue", name: one.channel, paused: one.paused, refresh })),
    one.paused?.at ? pausedNote(one.paused) : "");
}

// A login that is bound to some agents sees those, and not the processes.
function ignoreForbidden(error) {
  if (error.status === 403) {
    return null;
  }
  throw error;
}

// The numbers of all agents. During an upgrade, a process without this route may answer.
export async function agentNumbers(window) {
  try {
    return await ask(`/api/agents/stats?window=${window}`);
  } catch (error) {
    if (error.status === 404) {
      return {};
    }
    throw error;
  }
}

export async function open(page) {
  const agents = new Agents(page);
  page.head("Agents", {
    lead: "Load, success and cost of agents, and the processes that serve them",
    actions: [segments("Window of the numbers", WINDOWS, agents.window, (value) => {
      agents.window = value;
      page.note({ window: value === "day" ? "" : value });
      agents.refresher.now();
    })],
  });
  agents.show();
  await agents.refresher.first();
}

