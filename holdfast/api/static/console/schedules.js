// Schedules: messages that agents get at set times.

import { ask, askAll } from "../ask.js";
import { element } from "../dom.js";
import { moment } from "./format.js";
import { confirmAction, formDialog, toast } from "./forms.js";
import {
  action, card, empty, updateRows, stateBadge, table, tableRow, scrollBox,
} from "./parts.js";
import { addressWith, hrefOf } from "./router.js";

const COLUMNS = [
  { name: "Schedule" }, { name: "Agent" }, { name: "When" }, { name: "Next run" },
  { name: "Last run" }, { name: "Actions", hidden: true, kind: "actions" },
];
const RUNS = [{ name: "State" }, { name: "Answer", kind: "wide" }, { name: "Ran" }];
const SHOWN_RUNS = 50;
const FIELDS = [
  {
    name: "timing", label: "When", required: true, maxlength: 200,
    placeholder: "0 9 * * mon-fri", hint: "Cron, “every 10 min”, or an ISO time.",
  },
  { name: "message", label: "Message", required: true, isLong: true },
  { name: "agent", label: "Agent", placeholder: "the default agent" },
  { name: "zone", label: "Time zone", value: "UTC" },
  { name: "to", label: "Answer to", placeholder: "slack:C123" },
  {
    name: "missed", label: "Missed runs", value: "once",
    options: [["once", "make up for one"], ["skip", "skip"], ["all", "make up for all"]],
  },
];

function pathOf(schedule, verb = "") {
  return `/api/schedules/${encodeURIComponent(schedule.id)}${verb}`;
}

async function create(fields) {
  const body = {
    timing: fields.timing, message: fields.message, agent: fields.agent.trim(),
    zone: fields.zone.trim() || "UTC", missed: fields.missed, to: fields.to.trim() || null,
  };
  return ask("/api/schedules", { method: "POST", body });
}

function actionsOf(page, schedule, refresher) {
  const name = schedule.id;
  const post = (verb, told) => async () => {
    const { messageId } = await ask(pathOf(schedule, verb), { method: "POST" });
    toast(messageId ? `${told}: ${messageId}` : told);
    await refresher().now();
  };
  const isPaused = schedule.state === "paused";
  return [
    action(page.session, { label: "Run now", name,
      onclick: post("/run", "The message is stored") }),
    schedule.state === "ended" ? "" : action(page.session, {
      label: isPaused ? "Resume" : "Pause", name,
      onclick: post(isPaused ? "/resume" : "/pause", isPaused ? "Resumed" : "Paused"),
    }),
    action(page.session, {
      label: "Remove", name, onclick: async () => {
        const text = "Its past messages stay.";
        await confirmAction({ title: `Remove ${name}?`, text, confirm: "Remove", tone: "danger" },
          () => ask(pathOf(schedule), { method: "DELETE" }));
        await refresher().now();
      },
    }),
  ];
}

function scheduleRow(page, refresher) {
  return (schedule) => tableRow(COLUMNS, [
    [element("a", {
      class: "row-link", dir: "auto", href: addressWith({ schedule: schedule.id }),
      "aria-label": `Runs of ${schedule.message}`, "aria-current": schedule.isOpen && "true",
    }, schedule.message),
    element("span", { class: "soft small" }, schedule.id, schedule.to ? ` to ${schedule.to}`
      : "")],
    schedule.agent,
    [element("code", {}, schedule.timing), " ",
      element("span", { class: "soft small" }, schedule.zone)],
    schedule.state === "waiting" ? moment(schedule.nextAt) : stateBadge(schedule.state),
    moment(schedule.lastAt, "never"),
    actionsOf(page, schedule, refresher),
  ]);
}

function addButton(page, refresher) {
  return action(page.session, {
    label: "New schedule", tone: "primary", onclick: async () => {
      const made = await formDialog({
        title: "New schedule", fields: FIELDS, confirm: "Add schedule", work: create,
      });
      if (made) {
        toast("Schedule added");
        await refresher().now();
      }
    },
  });
}

function runRow(run) {
  const text = element("span", { class: "lines-2", dir: "auto" },
    run.answer ?? (run.status === "completed" ? "No answer" : "No answer yet"));
  return tableRow(RUNS, [
    stateBadge(run.status),
    run.eventId === null ? text : element("a", {
      class: "run-link", href: hrefOf("messages", run.eventId),
    }, text),
    moment(run.ranAt),
  ]);
}

// A schedule that was removed has no runs to show.
function unlessGone(error) {
  if (error.status === 404) {
    return null;
  }
  throw error;
}

// The latest runs of the schedule that the address names.
class Runs {
  constructor(id) {
    this.id = id;
    this.table = table("Runs of the schedule, newest first", RUNS);
    this.box = element("div", { id: "runs" });
    this.node = id ? card("Latest runs", [this.box], { class: "flush", actions: [
      element("a", { class: "button small ghost", href: addressWith({ schedule: "" }) }, "Close"),
    ] }) : "";
  }

  async load() {
    if (!this.id) {
      return;
    }
    const runs = await ask(pathOf(this, `/runs?limit=${SHOWN_RUNS}`)).catch(unlessGone);
    this.node.hidden = runs === null;
    if (runs === null) {
      return;
    }
    updateRows(this.table.body, runs, (one) => one.messageId, runRow);
    this.box.replaceChildren(runs.length ? scrollBox(this.table.node) : empty("It has not run yet",
      "Every run appears here with its answer.", { icon: "clock" }));
  }
}

export async function openSchedules(page, body) {
  const { node, body: rows } = table("Schedules", COLUMNS);
  const list = element("div", { id: "schedules" });
  const runs = new Runs(page.query.get("schedule"));
  let refresher;
  body.replaceChildren(card("Schedules", [list],
    { actions: [addButton(page, () => refresher)], class: "flush" }), runs.node);
  const types = ["message_received", "response_ready", "message_failed"];
  refresher = page.follow({ types, every: 10000, work: async () => {
    const [schedules] = await Promise.all([askAll("/api/schedules"), runs.load()]);
    const shown = schedules.map((one) => ({ ...one, isOpen: one.id === runs.id }));
    updateRows(rows, shown, (one) => one.id, scheduleRow(page, () => refresher));
    list.replaceChildren(schedules.length ? scrollBox(node) : empty("No schedules yet",
      "A schedule sends a message to an agent by cron, by interval, or once.", { icon: "clock" }));
  } });
  await refresher.first();
}
