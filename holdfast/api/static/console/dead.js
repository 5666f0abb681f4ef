// Dead letters, grouped by cause and agent: retried and discarded one, a group or all at a time.

import { ask } from "../ask.js";
import { element } from "../dom.js";
import { DeadGroup } from "./dead_group.js";
import { filterBar } from "./filters.js";
import { plural } from "./format.js";
import { toast } from "./forms.js";
import { act, settle } from "./dead_actions.js";
import { action, empty, roleNote, showOnly, skeleton } from "./parts.js";

const FOLLOWED = ["message_failed", "message_received", "chain_step_start", "response_ready"];
const FILTERS = [
  { name: "text", label: "Cause", placeholder: "part of the error", isWide: true },
  { name: "agent", label: "Agent", placeholder: "any" },
  {
    name: "queue", label: "Queue",
    options: [["", "all queues"], ["inbox", "inbox"], ["outbox", "outbox"], ["memory", "memory"]],
  },
];

function matches(page, group) {
  const text = (page.query.get("text") ?? "").toLowerCase();
  const agent = (page.query.get("agent") ?? "").toLowerCase();
  const queue = page.query.get("queue") ?? "";
  const cause = `${group.cause ?? ""} ${group.errorClass ?? ""} ${group.note?.text ?? ""}`;
  return (!queue || group.queue === queue)
    && (!agent || (group.agent ?? "").toLowerCase() === agent)
    && (!text || cause.toLowerCase().includes(text));
}

class DeadPage {
  constructor(page) {
    this.page = page;
    this.cards = new Map();
    this.list = element("div", { class: "groups" });
    this.box = element("div", {}, skeleton());
    this.total = element("span", { class: "soft small", role: "status" });
    this.refresher = page.follow({
      types: FOLLOWED, every: 15000, work: (frames) => this.load(frames),
    });
  }

  async load(frames) {
    this.groups = await ask("/api/dead/groups");
    this.show();
    for (const card of this.cards.values()) {
      card.follow(frames);
    }
  }

  show() {
    const shown = (this.groups ?? []).filter((group) => matches(this.page, group));
    const before = new Map(this.cards);
    this.cards.clear();
    shown.forEach((group, index) => this.#insert(group, index, before));
    for (const card of before.values()) {
      card.node.remove();
    }
    const number = shown.reduce((sum, group) => sum + group.count, 0);
    this.total.textContent = shown.length
      ? `${plural(number, "dead letter")} in ${plural(shown.length, "group")}` : "";
    showOnly(this.box, shown.length ? this.list : this.#nothing());
    this.shown = shown;
  }

  #insert(group, index, before) {
    const known = before.get(group.group);
    before.delete(group.group);
    const card = known ?? new DeadGroup(this.page, group, () => this.refresher.now());
    card.update(group);
    this.cards.set(group.group, card);
    if (this.list.children[index] !== card.node) {
      this.list.insertBefore(card.node, this.list.children[index] ?? null);
    }
  }

  #nothing() {
    return this.groups.length
      ? empty("Nothing matches", "No dead letter matches these filters.", { icon: "search" })
      : empty("No dead letters",
        "Every message was answered, or is on its way. What runs out of attempts comes here, "
        + "with its error, and stays until somebody decides.");
  }

  // Everything that the filters show, group by group: exactly the letters that are on the screen.
  async all(kind) {
    const groups = this.shown.filter((group) => kind === "discard" || !group.needsAssume);
    const left = this.shown.length - groups.length;
    if (!groups.length) {
      toast("Each of these needs a decision: did its call happen?");
      return;
    }
    const cards = groups.map((group) => this.cards.get(group.group));
    const bodies = groups.map(({ group }) => ({ group }));
    const hint = left ? ` ${plural(left, "group")} that need a decision are left out.` : "";
    await act({ kind, bodies, hint, cards, settled: (done) => this.#settled(kind, done) });
  }

  async #settled(kind, done) {
    settle(kind, done);
    await this.refresher.now();
  }
}

export async function open(page) {
  const dead = new DeadPage(page);
  page.head("Dead letters", {
    lead: "Messages, responses and memory changes that ran out of attempts",
    actions: [
      dead.total,
      action(page.session, { label: "Retry all…", onclick: () => dead.all("retry") }),
      action(page.session, { label: "Discard all…", onclick: () => dead.all("discard") }),
    ],
  });
  page.body.replaceChildren(element("div", { class: "stack" },
    roleNote(page.session, "admin", "Retrying, discarding and notes:"),
    filterBar(page, FILTERS, () => dead.show()), dead.box));
  await dead.refresher.first();
}
