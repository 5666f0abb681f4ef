// The frame of every page: sections, theme, session, connection and keyboard.

import { ask, Refused } from "./ask.js";
import {
  avatar, button, byId, codeElements, element, hidden, iconButton, nobody,
} from "./dom.js";
import { icon } from "./icons.js";
import { forgetTexts, keepFor } from "./keep.js";
import { openDialog } from "./overlay.js";
import { addShortcuts, showShortcuts } from "./shortcuts.js";

// A section is shown to the roles that can use it. `key` goes there after G.
export const SECTIONS = [
  { id: "chat", label: "Chat", href: "/", icon: "chat", key: "c", roles: "read send admin" },
  {
    id: "overview", label: "Overview", href: "/console", icon: "overview", key: "o",
    roles: "read admin",
  },
  {
    id: "messages", label: "Messages", href: "/console/messages", icon: "messages", key: "m",
    roles: "read send admin",
  },
  {
    id: "dead", label: "Dead letters", href: "/console/dead", icon: "dead", key: "d",
    roles: "read admin",
  },
  {
    id: "agents", label: "Agents", href: "/console/agents", icon: "agents", key: "a",
    roles: "read send admin",
  },
  {
    id: "memory", label: "Memory", href: "/console/memory", icon: "memory", key: "y",
    roles: "read admin",
  },
  {
    id: "access", label: "Access", href: "/console/access", icon: "key", key: "x",
    roles: "read admin",
  },
];
const LINES = {
  connecting: "Connecting",
  live: "Live",
  away: "Offline, trying again",
  out: "Not logged in",
};
const LOG_IN =
  "This browser is not logged in. Run `holdfast login` and open the link that it prints.";
const THEMES = [["system", "System"], ["light", "Light"], ["dark", "Dark"]];
const NOBODY = { role: "admin", name: "", isSession: false, isKnown: false };

export class Shell {
  // `section` is the id of the current one. The page has <nav id="rail">, <header id="top">.
  constructor({ section, title }) {
    this.section = section;
    this.session = NOBODY;
    this.title = element("p", { class: "title" }, title);
    this.#build();
    addShortcuts(
      { keys: "?", label: "Show keyboard shortcuts", run: showShortcuts },
      { keys: "Mod+/", run: showShortcuts },
    );
  }

  // Ask for the session. Returns it; without one, the page offers a login and gets undefined.
  async start() {
    const session = await this.attempt(() => ask("/api/session"));
    this.session = session ? { ...session, isKnown: true } : NOBODY;
    keepFor(this.session.name);
    this.#showSections();
    this.#showAccount();
    return session;
  }

  get role() {
    return this.session.role;
  }

  setConnection(state) {
    const shown = state === "away" && this.isLoggedOut ? "out" : state;
    byId("line").hidden = false;
    byId("line").dataset.state = shown;
    byId("line-text").textContent = LINES[shown];
  }

  // The page has changed without a reload.
  setSection(id) {
    this.section = id;
    this.#showSections();
    this.toggleDrawer(false);
  }

  setTitle(text) {
    this.title.textContent = text;
    document.title = text ? `${text} · Holdfast` : "Holdfast";
  }

  // Show a problem. Without one, the standing notice of the page is shown, if it has one.
  notice(text, kind = "") {
    const box = byId("notice");
    const shown = text || this.standing;
    box.className = `notice ${text ? kind : "calm"}`.trim();
    box.replaceChildren(...(shown ? [element("span", {}, ...codeElements(shown))] : []));
    box.hidden = !shown;
  }

  // Run a request. A refusal is shown as the notice; a lost connection is shown by the line.
  async attempt(work) {
    try {
      const result = await work();
      this.isLoggedOut = false;
      this.notice("");
      return result;
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        this.isLoggedOut = true;
        this.setConnection("out");
        this.notice(LOG_IN);
        byId("notice").append(element("a", { href: "/login" }, "Log in"));
      } else if (error instanceof Refused) {
        this.notice(error.message);
      }
      return undefined;
    }
  }

  toggleDrawer(isOpen = !document.body.classList.contains("drawer-open")) {
    document.body.classList.toggle("drawer-open", isOpen);
    this.scrim.hidden = !isOpen;
    this.menu.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) {
      byId("rail").querySelector("a, button")?.focus();
    } else if (byId("rail").contains(document.activeElement)) {
      this.menu.focus();
    }
  }

  #build() {
    this.sections = element("ul", { class: "sections" });
    this.account = element("button", {
      type: "button", class: "account", "aria-haspopup": "dialog",
      onclick: () => this.#openAccount(),
    });
    byId("rail").prepend(
      element("a", { class: "brand", href: "/" },
        element("img", { src: "/static/icon.svg", alt: "", width: 30, height: 30 }),
        element("span", { class: "word" }, "Holdfast"), hidden("Holdfast, start")),
      this.sections,
    );
    byId("rail").append(element("div", { class: "rail-end" },
      element("p", { id: "line", class: "line", role: "status", hidden: true },
        element("span", { class: "dot" }), element("span", { id: "line-text" })),
      this.account));
    this.menu = iconButton("menu", "Menu", () => this.toggleDrawer(), {
      "aria-expanded": "false", "aria-controls": "rail",
    });
    this.scrim = element("div", {
      class: "scrim", hidden: true, onclick: () => this.toggleDrawer(false),
    });
    byId("top").prepend(this.menu, this.title);
    document.body.append(this.scrim);
    // At the body, so that it comes before the shortcuts, one of which stops the answer.
    document.body.addEventListener("keydown", (event) => {
      const isOpen = document.body.classList.contains("drawer-open");
      if (event.key === "Escape" && isOpen && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        this.toggleDrawer(false);
      }
    });
    this.#showSections();
    this.#showAccount();
  }

  #showSections() {
    const shown = SECTIONS.filter(({ roles }) => (
      this.session.isKnown && roles.split(" ").includes(this.role)
    ));
    const sections = shown.length ? shown : SECTIONS.slice(0, 1);
    this.sections.replaceChildren(...sections.map((one) => element("li", {},
      element("a", {
        class: "section", href: one.href, "aria-current": one.id === this.section && "page",
      }, icon(one.icon), element("span", {}, one.label)))));
    if (!this.hasSectionKeys && this.session.isKnown) {
      this.hasSectionKeys = true;
      addShortcuts(...sections.map(({ key, label, href }) => (
        { keys: `g ${key}`, label: `Go to ${label}`, run: () => location.assign(href) }
      )));
    }
  }

  #showAccount() {
    const { name, role, isKnown, isSession } = this.session;
    this.account.title = isKnown ? `Logged in as ${name} (${role})` : "Account";
    this.account.replaceChildren(hidden("Account"), isSession ? avatar(name) : nobody());
  }

  #openAccount() {
    const { name, role, isSession, isKnown } = this.session;
    const who = isKnown ? `Logged in as ${name} (${role})` : "Not logged in";
    openDialog("Account", (close) => element("div", { class: "account-box" },
      element("p", { class: "soft" }, who),
      element("div", { class: "field" }, "Theme", themeSwitch()),
      element("div", { class: "actions" },
        button("Keyboard shortcuts", () => {
          close();
          showShortcuts();
        }, { icon: "keyboard" }),
        isSession && button("Log out", logOut, { icon: "logout", title: who }),
        button("Close", () => close(), { class: "button primary" }))));
  }
}

function themeSwitch() {
  const box = element("div", { class: "segments", role: "group" });
  box.setAttribute("aria-label", "Theme");
  const show = (chosen) => box.replaceChildren(...THEMES.map(([id, label]) => element("button", {
    type: "button",
    "aria-pressed": String(id === chosen),
    onclick: () => {
      setTheme(id);
      show(id);
      box.querySelector("[aria-pressed=true]").focus();
    },
  }, label)));
  show(document.documentElement.dataset.theme ?? "system");
  return box;
}

export function setTheme(id) {
  if (id === "system") {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = id;
  }
  try {
    localStorage.setItem("holdfast.theme", JSON.stringify(id));
  } catch {
    // Full or forbidden: the choice holds until the page is left.
  }
}

async function logOut() {
  await ask("/logout", { method: "POST" });
  forgetTexts();
  location.reload();
}
