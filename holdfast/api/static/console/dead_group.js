// A group of dead letters with one cause: its number, its note, its letters and what to do.

import { ask, askPage } from "../ask.js";
import { element, fold } from "../dom.js";
import { icon } from "../icons.js";
import { act, askAssumption, settle } from "./dead_actions.js";
import { EndlessList } from "./endless.js";
import { count, moment } from "./format.js";
import { formDialog, toast } from "./forms.js";
import { action, badge, empty, unique } from "./parts.js";
import { hrefOf } from "./router.js";

const PAGE = 20;
// The newest failure of each group when this person retried it. By the clock of the server: a later
// one means that a letter failed again.
const retries = new Map();

function letterActions(group, letter) {
  const name = String(letter.id);
  const session = group.page.session;
  return element("div", { class: "letter-actions" },
    action(session, {
      label: "Retry", name, "data-verb": "retry", onclick: () => group.one("retry", letter),
    }),
    action(session, {
      label: "Discard", name, tone: "ghost", "data-verb": "discard",
      onclick: () => group.one("discard", letter),
    }));
}

function letterRow(group) {
  return (letter) => element("li", { class: "letter", "data-id": letter.id },
    element("div", { class: "letter-main" },
      element("a", { class: "letter-text", href: hrefOf("messages", letter.id), dir: "auto" },
        letter.data.message || "(no text)"),
      element("p", { class: "soft small" },
        element("span", { dir: "auto" }, letter.data.sender || "–"), " · ", letter.data.channel,
        " · ",
        `${letter.attemptsMade} ${letter.attemptsMade === 1 ? "attempt" : "attempts"} · `,
        moment(letter.finishedAt)),
      element("p", { class: "letter-error small", dir: "auto" }, letter.failedReason ?? ""),
      letter.traceback ? element("details", { class: "trace" }, fold("Traceback"),
        element("pre", { tabindex: "0" }, letter.traceback)) : ""),
    letterActions(group, letter));
}

export class DeadGroup {
  constructor(page, group, refresh) {
    Object.assign(this, { page, group, refresh });
    this.bodyId = unique("dead-letters");
    this.head = element("header", { class: "group-head" });
    this.note = element("div", { class: "group-note" });
    this.body = element("div", { id: this.bodyId, class: "group-body", hidden: true });
    this.node = element("section", { class: "card group", "data-group": group.group },
      this.head, this.note, this.body);
    if (page.query.get("group") === group.group) {
      this.#setOpen(true);
    }
  }

  update(group) {
    const content = JSON.stringify([group, retries.get(group.group)]);
    if (content !== this.content) {
      this.content = content;
      this.group = group;
      this.#showHead();
      this.#showNote();
    }
  }

  setPending(kind) {
    this.node.classList.toggle("pending", Boolean(kind));
    this.node.setAttribute("aria-busy", String(Boolean(kind)));
  }

  #showHead() {
    const { group } = this;
    const hadFocus = this.head.contains(document.activeElement)
      ? document.activeElement.dataset.verb : undefined;
    const id = `${this.bodyId}-title`;
    this.node.setAttribute("aria-labelledby", id);
    this.toggle = element("button", {
      type: "button", class: "group-toggle", "aria-expanded": String(!this.body.hidden),
      "aria-controls": this.bodyId, "data-verb": "toggle",
      onclick: () => this.#setOpen(this.body.hidden),
    },
    icon("chevronRight"),
    element("span", { class: "group-count number" }, count(group.count)),
    element("span", { class: "group-words" },
      element("span", { class: "group-cause", id, dir: "auto" }, group.cause || "no error text"),
      element("span", { class: "group-meta soft small" },
        badge(group.agent || "–"), group.queue === "inbox" ? "" : badge(group.queue, "info"),
        group.needsAssume ? badge("needs a decision", "wait") : "",
        group.newestAt > (retries.get(group.group) ?? Infinity)
          ? badge("failed again since your retry", "bad") : "",
        element("span", {}, "newest ", moment(group.newestAt)),
        group.count > 1 ? element("span", {}, "oldest ", moment(group.oldestAt)) : "")));
    this.head.replaceChildren(this.toggle, this.#buttons());
    if (hadFocus) {
      this.head.querySelector(`[data-verb="${hadFocus}"]`)?.focus();
    }
  }

  #buttons() {
    const name = `the group ${(this.group.cause || "without an error text").slice(0, 80)}`;
    const session = this.page.session;
    return element("div", { class: "group-actions" },
      action(session, {
        label: "Note", name: `on ${name}`, tone: "ghost", "data-verb": "note",
        onclick: () => this.#editNote(),
      }),
      action(session, { label: "Retry", name, "data-verb": "retry",
        onclick: () => this.whole("retry") }),
      action(session, {
        label: "Discard", name, "data-verb": "discard", onclick: () => this.whole("discard"),
      }));
  }

  #showNote() {
    const { note } = this.group;
    this.note.hidden = !note;
    this.note.replaceChildren(...(note ? [icon("edit"), element("p", {},
      element("span", { dir: "auto" }, note.text), " ",
      element("span", { class: "soft small" }, note.by, ", ", moment(note.at)))] : []));
  }

  async #editNote() {
    const value = this.group.note?.text ?? "";
    const saved = await formDialog({
      title: "Note on this group", confirm: "Save note",
      text: "Everybody sees it here: who looks at it, and what was found.",
      fields: [{ name: "text", label: "Note", value, isLong: true, maxlength: 2000 }],
      work: ({ text }) => ask("/api/dead/groups/note", {
        method: "POST", body: { group: this.group.group, text },
      }),
    });
    if (saved) {
      await this.refresh();
    }
  }

  #setOpen(isOpen) {
    this.body.hidden = !isOpen;
    this.toggle?.setAttribute("aria-expanded", String(isOpen));
    this.page.note({ group: isOpen ? this.group.group : "" });
    if (isOpen) {
      this.#showRows();
    }
  }

  #showRows() {
    const rows = element("ul", { class: "dead-letters" });
    const { queue, group } = this.group;
    const query = new URLSearchParams({ queue, group, limit: PAGE });
    this.list = new EndlessList({
      page: this.page, rows, shown: rows, build: letterRow(this), key: (one) => one.id,
      load: (before) => askPage(`/api/queue/dead?${query}${before ? `&before_id=${before}` : ""}`),
      hint: () => empty("No letters left", "Somebody retried or discarded them."),
    });
    this.body.replaceChildren(this.list.node);
    this.list.restart();
  }

  // Something happened in the queue: read the first page again, if it is shown.
  async follow() {
    if (!this.body.hidden && this.list?.hasStarted) {
      this.list.merge(await this.list.load());
    }
  }

  async whole(kind) {
    const { group, needsAssume } = this.group;
    const assume = await this.#assumption(kind, needsAssume);
    if (assume === null) {
      return;
    }
    await act({
      kind, assume, bodies: [{ group }], cards: [this],
      settled: (done) => this.#settled(kind, done),
    });
  }

  async one(kind, letter) {
    const assume = await this.#assumption(kind, letter.errorClass === "EffectUnknown");
    if (assume === null) {
      return;
    }
    const row = this.list.known.get(letter.id)?.node;
    const card = { setPending: (state) => row?.classList.toggle("pending", Boolean(state)) };
    await act({
      kind, assume, isOne: true, bodies: [{ ids: [letter.id] }], cards: [card],
      settled: (done) => this.#settledOne(kind, letter, done),
    });
  }

  async #assumption(kind, isNeeded) {
    if (kind !== "retry" || !isNeeded) {
      return undefined;
    }
    return await askAssumption(this.group.agent || "It") || null;
  }

  async #settledOne(kind, letter, done) {
    if (done.count) {
      this.list.remove(letter.id);
      await this.#settled(kind, done);
    } else {
      toast("Somebody else has taken care of this letter already.");
      await this.refresh();
    }
  }

  async #settled(kind, done) {
    if (kind === "retry") {
      retries.set(this.group.group, this.group.newestAt);
    }
    settle(kind, done);
    await this.refresh();
  }
}
