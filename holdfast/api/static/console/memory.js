// Memory: who is remembered, what, and where it came from; corrected, removed and forgotten.

import { ask, Refused } from "../ask.js";
import { avatar, element, fold } from "../dom.js";
import { filterBar } from "./filters.js";
import { count, duration, elapsed, moment, percent, plural } from "./format.js";
import { confirmAction, formDialog, toast } from "./forms.js";
import { openDialog } from "../overlay.js";
import { action, badge, card, empty, updateRows, roleNote, showOnly, skeleton } from "./parts.js";
import { addressWith, hrefOf } from "./router.js";

const FILTERS = [{ name: "q", label: "Person or thing", placeholder: "part of a name or id",
  isWide: true }];
const PEOPLE = 100;
const LINES = 200;

// `default:USER:slack:id:U123` reads as U123, on slack.
export function nameOf(subject) {
  const parts = subject.split(":");
  return parts.at(-1) || subject;
}

// The kind of the subject and the place where it is known: person · slack.
function whereOf(subject) {
  const [workspace, kind, ...rest] = subject.split(":");
  const channels = rest.slice(0, -1).filter((part) => part !== "id");
  return [
    kind === "USER" ? "person" : kind?.toLowerCase().replaceAll("_", " "), ...channels,
    workspace === "default" ? "" : `workspace ${workspace}`,
  ].filter(Boolean).join(" · ");
}

function sourceOf(source) {
  const words = source.message ?? source.messageId;
  const text = element("span", { class: "lines-2", dir: "auto" }, words);
  return element("li", { class: "source small" },
    source.eventId === null ? text
      : element("a", { href: hrefOf("messages", source.eventId) }, text),
    element("span", { class: "soft" }, [source.sender, source.channel].filter(Boolean).join(" on "),
      " ",
      source.at === null ? "" : moment(source.at)));
}

class Memory {
  constructor(page) {
    this.page = page;
    this.people = element("ul", { class: "people" });
    this.peopleBox = element("div", {}, skeleton());
    this.lines = element("ul", { class: "observations" });
    this.detail = element("div");
    this.state = element("div");
    this.refresher = page.follow({
      types: ["chain_step_done"], interval: 3000, every: 20000, work: () => this.load(),
    });
  }

  get person() {
    return this.page.query.get("person");
  }

  async load() {
    await Promise.all([this.loadPeople(), this.loadStatus(), this.loadLines()]);
  }

  async loadPeople() {
    const query = new URLSearchParams({ limit: PEOPLE });
    if (this.page.query.get("q")) {
      query.set("q", this.page.query.get("q"));
    }
    const people = await ask(`/api/memory/people?${query}`);
    const shown = people.map((one) => ({ ...one, isOpen: one.person === this.person }));
    updateRows(this.people, shown, (one) => one.person, (one) => personRow(one));
    showOnly(this.peopleBox, people.length ? this.people : this.page.query.get("q")
      ? empty("Nobody matches", "No person or thing has this in its id.", { icon: "search" })
      : empty("Nobody is remembered yet", "What agents observe about people appears here.",
        { icon: "memory" }));
  }

  async loadStatus() {
    const status = await ask("/api/memory/status");
    const isBehind = status.pending > 0;
    this.state.replaceChildren(
      fact("Remembered", plural(status.people, "person", "people")),
      fact("Lines", count(status.observations)),
      fact("Index", status.index === null ? "none" : `${count(status.index.documents)} documents`),
      fact("Lag", isBehind ? element("span", {}, `${count(status.pending)} behind, `,
        elapsed(status.oldestAt)) : "none", isBehind ? "wait" : "good"),
      fact("Dead", status.dead
        ? element("a", { class: "bad-link", href: "/console/dead?queue=memory" },
        count(status.dead)) : "0"),
    );
  }

  async loadLines() {
    if (!this.person) {
      showOnly(this.detail, this.choose);
      return;
    }
    const query = new URLSearchParams({ subject: this.person, limit: LINES });
    const lines = await ask(`/api/observations?${query}`);
    updateRows(this.lines, lines, (one) => one.id, (one) => this.lineRow(one));
    this.#showPerson(lines);
  }

  #showPerson(lines) {
    const content = JSON.stringify([this.person, lines.length]);
    if (content === this.detailContent && this.detail.contains(this.lines)) {
      return;
    }
    this.detailContent = content;
    const forget = action(this.page.session, {
      label: "Forget…", tone: "caution", name: nameOf(this.person), onclick: () => this.forget(),
    });
    this.detail.replaceChildren(card(nameOf(this.person), [
      element("p", { class: "soft small", title: this.person }, whereOf(this.person)),
      lines.length ? this.lines : empty("Nothing is remembered", "There is no line about this one.",
        { icon: "memory" }),
    ], { actions: [forget] }));
  }

  lineRow(line) {
    const { session } = this.page;
    const name = `“${line.content.slice(0, 60)}”`;
    return element("li", { class: "observation", "data-id": line.id },
      element("p", { class: "observation-text", dir: "auto" }, line.content),
      element("p", { class: "soft small" },
        badge(line.type.toLowerCase()), ` confidence ${percent(line.confidence)}`,
        line.observer ? ` · noted by ${line.observer}` : "", " · ", moment(line.updatedAt),
        line.pending ? badge("not indexed yet", "wait") : ""),
      line.sources.length
        ? element("details", { class: "sources" },
          fold(plural(line.sources.length, "source")),
          element("ul", {}, ...line.sources.map(sourceOf)))
        : "",
      element("div", { class: "letter-actions" },
        action(session, { label: "Correct", name, onclick: () => this.correct(line) }),
        action(session, { label: "Remove", name, tone: "ghost",
          onclick: () => this.remove(line) })));
  }

  async correct(line) {
    const workspace = line.subject.split(":")[0];
    const saved = await formDialog({
      title: "Correct this line", confirm: "Save",
      text: "Agents read the new text from their next turn on.",
      fields: [{ name: "content", label: "Text", value: line.content, isLong: true,
        required: true }],
      work: ({ content }) => ask(`/api/observations/${encodeURIComponent(line.id)}`, {
        method: "POST", body: { workspace, content, version: line.version },
      }),
    });
    if (saved) {
      toast("Corrected");
      await this.refresher.now();
    }
  }

  async remove(line) {
    const query = new URLSearchParams({ workspace: line.subject.split(":")[0] });
    const path = `/api/observations/${encodeURIComponent(line.id)}?${query}`;
    await confirmAction({ title: "Remove this line?", text: line.content, confirm: "Remove line" },
      () => ask(path, { method: "DELETE" }));
    await this.refresher.now();
  }

  async forget() {
    const { person } = this;
    const report = await formDialog({
      title: `Forget ${nameOf(person)}?`, confirm: "Forget for ever", tone: "danger",
      text: "Every trace goes: lines, index, messages, answers and files. This cannot be undone."
        + ` Type the name to confirm: ${nameOf(person)}`,
      fields: [{ name: "typed", label: "Name", required: true }],
      work: async ({ typed }) => {
        if (typed.trim() !== nameOf(person)) {
          throw new Error("That is another name.");
        }
        return forgetAll(person);
      },
    });
    if (report) {
      await showReport(person, report);
      this.page.note({ person: "" });
      await this.refresher.now();
    }
  }

  async verify() {
    const report = await ask("/api/memory/verify", { method: "POST" });
    await openDialog("Index and store compared",
      (close) => element("div", { class: "dialog-body form" },
      element("p", {}, report.count
        ? `${plural(report.count, "difference")} in ${plural(report.subjects, "subject")}.`
        : `No difference in ${plural(report.subjects, "subject")}.`,
      element("span", { class: "soft" }, ` It took ${duration(report.milliseconds)}.`)),
      element("ul", { class: "works" },
        ...report.differences.map((one) => element("li", { class: "work" },
        badge(one.what, "bad"), element("span", { class: "clip" }, `${one.subject} ${one.id}`)))),
      element("div", { class: "actions" },
        element("button", { type: "button", class: "button primary", onclick: () => close() },
          "Close"))));
  }
}

async function forgetAll(person) {
  const path = `/api/memory/${person.split("/").map(encodeURIComponent).join("/")}`;
  try {
    return await ask(path, { method: "DELETE" });
  } catch (error) {
    if (error instanceof Refused && error.status === 409) {
      return ask(`${path}?all=true`, { method: "DELETE" });
    }
    throw error;
  }
}

function showReport(person, report) {
  return openDialog(`${nameOf(person)} is forgotten`,
    (close) => element("div", { class: "dialog-body form" },
    element("p", { class: "soft" }, "Rows that were removed:"),
    element("dl", { class: "keys" }, ...Object.entries(report).flatMap(([kind, number]) => [
      element("dt", {}, kind.replaceAll("_", " ")),
      element("dd", { class: "number" }, count(number)),
    ])),
    element("div", { class: "actions" },
      element("button", { type: "button", class: "button primary", onclick: () => close() },
        "Close"))));
}

function fact(name, value, tone = "") {
  return element("div", { class: "mini" }, element("span", { class: "soft small" }, name),
    element("strong", { class: `number ${tone}`.trim() }, value));
}

function personRow(one) {
  return element("li", {}, element("a", {
    class: "person", href: addressWith({ person: one.person }),
    "aria-current": one.isOpen && "true",
  },
  avatar(nameOf(one.person)),
  element("span", { class: "agent-words" },
    element("strong", { class: "clip", dir: "auto" }, nameOf(one.person)),
    element("span", { class: "soft small clip" }, whereOf(one.person),
      one.identities.length > 1 ? ` · ${plural(one.identities.length, "identity", "identities")}`
        : "")),
  badge(count(one.observations))));
}

export async function open(page) {
  const memory = new Memory(page);
  memory.choose = empty("Choose somebody", "Their lines appear here, with where each came from.",
    { icon: "memory" });
  page.head("Memory", {
    lead: "Who is remembered, what, and where each line came from",
    actions: [action(page.session, { label: "Verify the index", onclick: () => memory.verify() })],
  });
  memory.state.className = "minis card";
  page.body.replaceChildren(element("div", { class: "stack" },
    roleNote(page.session, "admin", "Correcting, forgetting and verifying:"), memory.state,
    element("div", { class: "master" },
      element("div", { class: "stack" },
        filterBar(page, FILTERS, () => memory.refresher.now()),
        card("People and things", [memory.peopleBox], { class: "flush" })),
      memory.detail)));
  await memory.refresher.first();
}
