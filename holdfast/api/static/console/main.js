// The operators' console: one page that shows all of its parts, over one event stream.

import { byId, element } from "../dom.js";
import { addShortcuts } from "../shortcuts.js";
import { Shell } from "../shell.js";
import { FrameSource } from "./frames.js";
import { Refresher } from "./live.js";
import { deniedBox, empty, failure, showOnly, skeleton } from "./parts.js";
import { Router } from "./router.js";

const SECTION_OF = { message: "messages", agent: "agents", room: "agents" };
const TITLES = {
  overview: "Overview", messages: "Messages", message: "Message", dead: "Dead letters",
  agents: "Agents", agent: "Agent", room: "Room", memory: "Memory", access: "Access",
};
const ITEMS = ".row-link, .group-toggle, .letter-text, .person, .attention a";
const MODULES = {
  overview: () => import("./overview.js"),
  messages: () => import("./messages.js"),
  message: () => import("./message.js"),
  dead: () => import("./dead.js"),
  agents: () => import("./agents.js"),
  agent: () => import("./agent.js"),
  room: () => import("./room.js"),
  memory: () => import("./memory.js"),
  access: () => import("./access.js"),
};

const shell = new Shell({ section: "overview", title: "Console" });
const frames = new FrameSource((state) => shell.setConnection(state));
const router = new Router(show);

// A page that is open: where it draws, the person, the address, and how it follows the stream.
class Page {
  constructor(params, signal) {
    this.params = params;
    this.signal = signal;
    this.session = shell.session;
    this.body = byId("page-body");
    this.query = new URLSearchParams(location.search);
  }

  // Write the title and what stands beside it.
  head(title, { lead = "", actions = [] } = {}) {
    shell.setTitle(title);
    byId("page-head").replaceChildren(
      element("div", { class: "page-title" },
        element("h1", { id: "page-title", tabindex: "-1", dir: "auto" }, title),
        lead && element("p", { class: "soft small" }, lead)),
      element("div", { class: "actions" }, ...actions),
    );
  }

  // Note filters in the address bar.
  note(changes) {
    router.note(changes);
    this.query = new URLSearchParams(location.search);
  }

  go(address) {
    router.go(address);
  }

  // Do some work again whenever a frame of these types arrives, the stream was interrupted, or
  // `every` milliseconds are over. The caller begins it.
  follow({ types, work, interval, every = 30000, wants = () => true }) {
    const refresher = new Refresher({
      work: (given) => this.#noted(work(given)), interval, every, signal: this.signal,
      onError: (error) => this.showFailure(error),
    });
    frames.add({ types: new Set(types), wants, refresher }, this.signal);
    return refresher;
  }

  async #noted(work) {
    await work;
    if (this.hasFailed) {
      this.hasFailed = false;
      shell.notice("");
    }
  }

  // A page that was loaded once stays as it is while the server is away: the connection line of
  // the shell says so.
  showFailure(error) {
    if (error.status === 401) {
      shell.attempt(() => Promise.reject(error));
    } else if (error.status) {
      this.hasFailed = true;
      shell.notice(error.message);
    }
  }
}

async function show(found, signal) {
  const page = new Page(found?.params ?? {}, signal);
  shell.notice("");
  if (!found) {
    page.head("Not found");
    showOnly(page.body, empty("There is no such page", "The address may be mistyped.", {
      icon: "search", more: element("a", { class: "button", href: "/console" }, "To the overview"),
    }));
    return;
  }
  shell.setSection(SECTION_OF[found.name] ?? found.name);
  page.head(TITLES[found.name]);
  page.body.replaceChildren(skeleton());
  page.body.scrollTop = 0;
  try {
    const { open } = await MODULES[found.name]();
    if (!signal.aborted) {
      await open(page);
    }
  } catch (error) {
    if (!signal.aborted) {
      showFailure(page, error);
    }
  }
  if (!signal.aborted && document.activeElement === document.body) {
    byId("page-title")?.focus({ preventScroll: true });
  }
}

// A page that could not be loaded is tried again by the person, or when the server is back.
function showFailure(page, error) {
  const again = () => router.reload();
  frames.add({ types: new Set(), wants: () => false, refresher: { want: again } }, page.signal);
  if (error.status === 401) {
    page.showFailure(error);
  }
  const isRefused = error.status === 403;
  showOnly(page.body, isRefused
    ? deniedBox("This is not for your login", page.session, "read", error.message)
    : failure(error, again));
}

async function start() {
  const session = await shell.start();
  if (!session) {
    byId("page-body").replaceChildren(empty("Not logged in",
      "Run holdfast login in a terminal, and open the link that it prints.", { icon: "key" }));
    return;
  }
  addShortcuts(
    { keys: "/", label: "Filter or search this page", run: focusSearch },
    { keys: "j", label: "Next item of the list", run: () => focusItem(1) },
    { keys: "k", label: "Previous item of the list", run: () => focusItem(-1) },
  );
  frames.open();
  router.start();
}

function focusItem(step) {
  const items = [...byId("page-body").querySelectorAll(ITEMS)];
  const at = items.findIndex((item) => item === document.activeElement);
  items[Math.min(Math.max(at + step, 0), items.length - 1)]?.focus();
}

function focusSearch() {
  document.querySelector("#page-body [type=search], #page-body .filters .input")?.focus();
}

start();
