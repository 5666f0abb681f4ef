// Completion of @agents and @teams at the beginning of a message, with their descriptions.

import { avatar, element } from "../dom.js";

const MOST = 8;

export class Mentions {
  constructor({ text, list }) {
    Object.assign(this, { text, list });
    this.known = [];
    this.found = [];
    this.at = 0;
    // A text area cannot be a combobox, so it has no `aria-expanded`.
    text.setAttribute("aria-haspopup", "listbox");
    text.setAttribute("aria-autocomplete", "list");
    text.setAttribute("aria-controls", list.id);
    text.addEventListener("input", () => this.#look());
    text.addEventListener("click", () => this.#look());
    text.addEventListener("blur", () => this.close());
    // In the capture phase, so that it comes before the composer, which sends on Enter.
    text.addEventListener("keydown", (event) => this.#onKey(event), true);
    this.close();
  }

  get isOpen() {
    return !this.list.hidden;
  }

  // Somebody may have typed a name before the list came.
  learn(entries) {
    this.known = entries;
    if (document.activeElement === this.text && !this.isOpen) {
      this.#look();
    }
  }

  // The entry that a text addresses: only at its beginning, followed by a blank.
  findAddressed(text) {
    const name = /^@(\S+)\s/.exec(text)?.[1].toLowerCase();
    return name && this.known.find((one) => (
      one.id.toLowerCase() === name || one.name.toLowerCase() === name
    ));
  }

  close() {
    this.list.hidden = true;
    this.text.removeAttribute("aria-activedescendant");
  }

  #look() {
    const before = this.text.value.slice(0, this.text.selectionStart);
    const typed = /^@([^\s@]*)$/.exec(before)?.[1].toLowerCase();
    this.found = typed === undefined ? [] : this.#matches(typed);
    if (!this.found.length) {
      this.close();
      return;
    }
    this.at = 0;
    this.#show();
  }

  #matches(typed) {
    const rank = ({ id, name }) => (
      id.toLowerCase().startsWith(typed) || name.toLowerCase().startsWith(typed) ? 0 : 1
    );
    return this.known
      .filter(({ id, name }) => `${id} ${name}`.toLowerCase().includes(typed))
      .sort((one, other) => rank(one) - rank(other))
      .slice(0, MOST);
  }

  #show() {
    this.list.replaceChildren(...this.found.map((one, nth) => element("li", {
      id: `mention-${nth}`,
      role: "option",
      "aria-selected": String(nth === this.at),
      // Without this, the field would lose its focus.
      onpointerdown: (event) => {
        event.preventDefault();
        this.#choose(one);
      },
    }, avatar(one.name, one.id), element("span", { class: "mention-text" },
      element("span", {}, element("strong", { dir: "auto" }, one.name),
        element("span", { class: "soft" }, ` @${one.id}${one.isTeam ? " · team" : ""}`)),
      one.description
        ? element("span", { class: "soft small clip", dir: "auto" }, one.description) : ""))));
    this.list.hidden = false;
    this.text.setAttribute("aria-activedescendant", `mention-${this.at}`);
    this.list.children[this.at].scrollIntoView({ block: "nearest" });
  }

  #choose(one) {
    const after = this.text.value.slice(this.text.selectionStart).trimStart();
    this.text.value = `@${one.id} ${after}`;
    const at = one.id.length + 2;
    this.text.setSelectionRange(at, at);
    this.close();
    this.text.dispatchEvent(new Event("input"));
  }

  #onKey(event) {
    if (!this.isOpen || event.isComposing) {
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      this.at = (this.at + step + this.found.length) % this.found.length;
      this.#show();
    } else if (event.key === "Enter" || event.key === "Tab") {
      this.#choose(this.found[this.at]);
    } else if (event.key === "Escape") {
      this.close();
    } else {
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}
