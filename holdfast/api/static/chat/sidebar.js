// The list of conversations, which the server keeps: search, pin, archive, rename, export, delete.

import { ask, askPage } from "../ask.js";
import { byId, element, iconButton, skeletons, stateBox } from "../dom.js";
import { confirmAction, openMenu, toast } from "../overlay.js";
import { relative, timeElement } from "../time.js";
import { draftOf } from "./drafts.js";
import { SearchResults } from "./search.js";

const PAGE = 40;
const REFRESH_AFTER = 400;
const DAY = 24 * 60 * 60 * 1000;

export function pathOf(conversation, part = "") {
  return `/api/conversations/${encodeURIComponent(conversation)}${part}`;
}

// The key by which a link or button is found again after the list was built anew.
function keyOf(node) {
  return `${node.tagName} ${node.dataset.conversation}`;
}

function groupOf(millis) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (millis >= midnight) {
    return "Today";
  }
  if (millis >= midnight - DAY) {
    return "Yesterday";
  }
  return millis >= midnight - 7 * DAY ? "Previous 7 days" : "Older";
}

export class Sidebar {
  constructor({ channel, attempt, onOpen, onChanged, onDeleted }) {
    Object.assign(this, { channel, attempt, onOpen, onChanged, onDeleted });
    this.rows = new Map();
    this.current = "";
    this.isArchive = false;
    this.mayChange = false;
    // Whether this server can search, rename, pin, archive and delete.
    this.isManaged = true;
    this.list = byId("conversations");
    this.list.append(skeletons(6, "tall"));
    this.search = new SearchResults({
      input: byId("search"),
      list: this.list,
      channel,
      attempt,
      link: (row, ...content) => this.link(row, ...content),
      onEmpty: () => this.show(),
    });
    byId("archive").addEventListener("click", () => this.#toggleArchive());
    byId("sidebar-scroll").addEventListener("scroll", () => this.#onScroll(), { passive: true });
  }

  find(conversation) {
    return this.rows.get(conversation);
  }

  // The rows in the order in which they are shown.
  get order() {
    const rows = [...this.rows.values()].sort((one, other) => other.id - one.id);
    return [...rows.filter(({ pinned }) => pinned), ...rows.filter(({ pinned }) => !pinned)];
  }

  refreshSoon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.refresh();
    }, REFRESH_AFTER);
  }

  async refresh() {
    const { isArchive } = this;
    byId("archive").hidden = byId("search").hidden = !this.isManaged;
    const found = await this.attempt(() => Promise.all([
      isArchive ? { rows: [] } : askPage(this.#path("&pinned=true&limit=100")),
      askPage(this.#path(`${isArchive ? "" : "&pinned=false"}&limit=${PAGE}`)),
    ]));
    if (found && isArchive === this.isArchive) {
      const [pinned, page] = found;
      this.rows = new Map([...pinned.rows, ...page.rows].map((row) => [row.conversation, row]));
      this.next = page.next;
      this.isLoaded = true;
      this.show();
      this.onChanged();
    }
  }

  #path(further) {
    return `/api/conversations?channel=${this.channel}&archived=${this.isArchive}${further}`;
  }

  async #onScroll() {
    const node = byId("sidebar-scroll");
    const isNear = node.scrollHeight - node.scrollTop - node.clientHeight < 300;
    if (!isNear || !this.next || this.isLoadingMore || this.search.isActive) {
      return;
    }
    this.isLoadingMore = true;
    const kind = this.isArchive ? "" : "&pinned=false";
    const path = this.#path(`${kind}&limit=${PAGE}&before_id=${this.next}`);
    const page = await this.attempt(() => askPage(path));
    this.isLoadingMore = false;
    if (page) {
      page.rows.forEach((row) => this.rows.set(row.conversation, row));
      this.next = page.next;
      this.show();
    }
  }

  open(conversation) {
    this.current = conversation;
    for (const link of this.list.querySelectorAll("a.conversation")) {
      const isCurrent = link.dataset.conversation === conversation;
      link.toggleAttribute("aria-current", isCurrent);
      if (isCurrent) {
        link.setAttribute("aria-current", "page");
      }
    }
  }

  show() {
    if (this.search.isActive) {
      return;
    }
    if (this.list.querySelector("[aria-expanded=true], input")) {
      // A menu or a field is open: the list waits for it.
      this.showSoon();
      return;
    }
    const groups = new Map();
    for (const row of this.order) {
      const name = row.pinned ? "Pinned" : groupOf(row.updatedAt);
      groups.set(name, [...(groups.get(name) ?? []), row]);
    }
    const focused = this.list.contains(document.activeElement) && keyOf(document.activeElement);
    const sections = [...groups].map(([name, rows]) => this.#group(name, rows));
    this.list.replaceChildren(...(sections.length ? sections : [this.#none()]));
    if (focused) {
      [...this.list.querySelectorAll("a, button")].find((one) => keyOf(one) === focused)?.focus();
    }
    byId("archive").setAttribute("aria-pressed", String(this.isArchive));
  }

  showSoon() {
    clearTimeout(this.showing);
    this.showing = setTimeout(() => this.show(), REFRESH_AFTER);
  }

  #none() {
    return this.isArchive
      ? stateBox({ icon: "archive", title: "Nothing archived", level: "h3" })
      : stateBox({ icon: "chat", title: "No conversations yet", level: "h3",
        text: "They appear here, on every browser you log in with." });
  }

  #group(name, rows) {
    return element("section", { class: "group" },
      element("h3", {}, name),
      element("ul", {}, ...rows.map((row) => this.#item(row))));
  }

  #item(row) {
    const more = iconButton("more", `Actions for ${row.title}`, () => this.menu(row, more), {
      class: "icon-button small more", "aria-haspopup": "menu", "aria-expanded": "false",
      "data-conversation": row.conversation,
    });
    const isUnread = row.unread > 0 && row.conversation !== this.current;
    const hasDraft = row.conversation !== this.current && draftOf(row.conversation).text;
    const link = this.link(row,
      element("span", { class: "name clip", dir: "auto" }, row.title),
      hasDraft ? element("span", { class: "draft" }, "Draft") : "",
      timeElement(row.updatedAt, { class: "row-time", isBrief: true, "aria-hidden": "true" }),
      isUnread ? element("span", { class: "unread number" }, `${row.unread}`,
        element("span", { class: "hidden-text" }, " unread")) : "");
    return element("li", { class: isUnread ? "is-unread" : "" }, link, more);
  }

  link(row, ...content) {
    return element("a", {
      class: "conversation",
      href: `/?c=${encodeURIComponent(row.conversation)}`,
      "data-conversation": row.conversation,
      title: `${row.title}\n${relative(row.updatedAt)}`,
      "aria-current": row.conversation === this.current && "page",
      onclick: (event) => {
        if (!event.ctrlKey && !event.metaKey && !event.shiftKey) {
          event.preventDefault();
          this.onOpen(row.conversation, event.currentTarget.reveal);
        }
      },
    }, ...content);
  }

  // The actions on a conversation, from the list or from the head of the page.
  menu(row, anchor) {
    const exported = (format) => ({
      label: `Export as ${format === "json" ? "JSON" : "Markdown"}`, icon: "download",
      href: pathOf(row.conversation, `/export?format=${format}`), download: "",
    });
    if (!this.isManaged) {
      return;
    }
    const changes = [
      { label: "Rename", icon: "edit", run: () => this.rename(row) },
      { label: row.pinned ? "Unpin" : "Pin", icon: "pin", run: () => this.pin(row) },
      { label: row.archived ? "Unarchive" : "Archive", icon: "archive",
        run: () => this.archive(row) },
      null,
    ];
    const erase = { label: "Delete", icon: "trash", kind: "bad", run: () => this.remove(row) };
    openMenu(anchor, [
      ...(this.mayChange ? changes : []), exported("markdown"), exported("json"),
      ...(this.mayChange ? [null, erase] : []),
    ], "Conversation");
  }

  async change(row, values) {
    const path = pathOf(row.conversation);
    const changed = await this.attempt(() => ask(path, { method: "POST", body: values }));
    if (changed) {
      this.rows.set(row.conversation, changed);
      this.show();
      this.onChanged();
      this.refreshSoon();
    }
    return changed;
  }

  // Rename in place: the title becomes a field until Enter, Escape or a click elsewhere.
  rename(row) {
    const selector = `a[data-conversation="${CSS.escape(row.conversation)}"]`;
    const link = this.list.querySelector(selector);
    if (!link) {
      this.onRename(row);
      return;
    }
    const input = element("input", {
      class: "input", value: row.title, maxlength: 200, dir: "auto", "aria-label": "Title",
    });
    let isOver = false;
    const end = async (isSaving) => {
      if (isOver) {
        return;
      }
      isOver = true;
      const title = input.value.trim();
      input.replaceWith(link);
      if (isSaving && title && title !== row.title) {
        await this.change(row, { title });
      }
      this.show();
      this.list.querySelector(selector)?.focus();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "Escape") {
        event.preventDefault();
        event.stopPropagation();
        end(event.key === "Enter");
      }
    });
    input.addEventListener("blur", () => end(true));
    link.replaceWith(input);
    input.select();
  }

  pin(row) {
    this.rows.set(row.conversation, { ...row, pinned: !row.pinned });
    this.show();
    return this.change(row, { pinned: !row.pinned });
  }

  // Shown at once: Undo takes it back.
  async archive(row) {
    const archived = !row.archived;
    this.rows.delete(row.conversation);
    this.show();
    const path = pathOf(row.conversation);
    const done = await this.attempt(() => ask(path, { method: "POST", body: { archived } }));
    this.refresh();
    if (done) {
      toast(archived ? "Archived" : "Back in the list", {
        action: "Undo",
        run: () => this.attempt(async () => {
          await ask(path, { method: "POST", body: { archived: !archived } });
          await this.refresh();
        }),
      });
    }
  }

  async remove(row) {
    const isSure = await confirmAction({
      title: "Delete this conversation?",
      text: `“${row.title}”, its answers, steps and files are erased everywhere, for good.`,
      action: "Delete",
    });
    const path = pathOf(row.conversation);
    if (isSure && await this.attempt(() => ask(path, { method: "DELETE" }))) {
      this.rows.delete(row.conversation);
      this.show();
      this.onDeleted(row.conversation);
      toast("Conversation deleted");
    }
  }

  #toggleArchive() {
    this.isArchive = !this.isArchive;
    this.rows = new Map();
    this.list.replaceChildren(skeletons(6, "tall"));
    this.refresh();
  }
}

