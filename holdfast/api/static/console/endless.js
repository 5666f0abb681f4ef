// A list that loads its next page when the reader comes near its end, by cursor.

import { element } from "../dom.js";
import { failure, showOnly, skeleton } from "./parts.js";

const AHEAD = "800px 0px";
// A filter that matches little may take several searches. Each is bounded, and so is their number.
const MOST_EMPTY_PAGES = 20;

export class EndlessList {
  // `load(before)` returns {rows, next}. `shown` is the node that holds `rows`; `hint` builds what
  // is shown instead if there is nothing.
  constructor({ page, rows, shown, load, build, key, hint }) {
    Object.assign(this, { page, rows, shown, load, build, key, hint });
    this.end = element("div", { class: "list-end", role: "status" });
    this.box = element("div");
    this.node = element("div", {}, this.box, this.end);
    this.known = new Map();
    this.turn = 0;
    const watcher = new IntersectionObserver((seen) => {
      if (seen.some((one) => one.isIntersecting)) {
        this.more();
      }
    }, { root: page.body, rootMargin: AHEAD });
    watcher.observe(this.end);
    page.signal.addEventListener("abort", () => watcher.disconnect());
  }

  async restart() {
    this.turn += 1;
    this.next = undefined;
    this.isLoading = false;
    this.hasStarted = false;
    if (!this.known.size) {
      showOnly(this.box, skeleton());
    }
    await this.more();
  }

  // Load the next page, if there is one.
  async more() {
    if (this.isLoading || (this.hasStarted && !this.next)) {
      return;
    }
    this.isLoading = true;
    const turn = this.turn;
    this.end.textContent = this.hasStarted ? "Loading…" : "";
    try {
      await this.#loadPage(turn);
    } catch (error) {
      if (turn === this.turn && !this.page.signal.aborted) {
        this.#onFailure(error);
      }
    }
    if (turn === this.turn) {
      this.isLoading = false;
      this.#goOnIfShort();
    }
  }

  // If the rows do not fill the screen, nobody can scroll, so load the next page at once.
  #goOnIfShort() {
    const isNear = this.end.getBoundingClientRect().top < innerHeight + 800;
    if (this.next && isNear && this.node.isConnected && !this.page.signal.aborted) {
      setTimeout(() => this.more(), 0);
    }
  }

  async #loadPage(turn) {
    let empties = 0;
    let found;
    do {
      found = await this.load(this.next);
      if (turn !== this.turn || this.page.signal.aborted) {
        return;
      }
      this.next = found.next;
      empties += 1;
    } while (!found.rows.length && this.next && empties < MOST_EMPTY_PAGES);
    this.#add(found.rows, !this.hasStarted);
    this.hasStarted = true;
    this.#showEnd(found.rows.length);
  }

  #showEnd(number) {
    if (this.next && !number) {
      this.end.replaceChildren("Searched far back without a match. ", element("button", {
        type: "button", class: "button small", onclick: () => this.more(),
      }, "Search further"));
    } else {
      this.end.textContent = this.next || !this.known.size ? "" : "That is all.";
    }
  }

  #onFailure(error) {
    const again = () => {
      this.end.replaceChildren();
      this.isLoading = false;
      this.more();
    };
    if (this.known.size) {
      this.end.replaceChildren(failure(error, again));
      this.next = undefined;
    } else {
      this.box.replaceChildren(failure(error, () => this.restart()));
    }
  }

  #add(rows, isFirst) {
    if (isFirst) {
      this.known.clear();
      this.rows.replaceChildren();
    }
    rows.forEach((row) => this.#put(row));
    showOnly(this.box, this.known.size ? this.shown : this.hint());
  }

  #put(row) {
    const id = this.key(row);
    const content = JSON.stringify(row);
    const known = this.known.get(id);
    if (known?.content === content) {
      return;
    }
    const node = this.build(row);
    if (known) {
      const hasFocus = known.node.contains(document.activeElement);
      known.node.replaceWith(node);
      if (hasFocus) {
        node.querySelector("a, button")?.focus();
      }
    } else {
      this.rows.insertBefore(node, this.#rowAfter(id));
    }
    node.rowId = id;
    this.known.set(id, { node, content });
  }

  // Ids descend from top to bottom. New rows belong near the top, rows of the next page at the end.
  #rowAfter(id) {
    const last = this.rows.lastChild;
    if (!last || last.rowId > id) {
      return null;
    }
    let row = this.rows.firstChild;
    while (row && row.rowId > id) {
      row = row.nextSibling;
    }
    return row;
  }

  // Take the first page once more: show what is new or changed, and remove what no longer matches.
  // Returns the number of new rows.
  merge({ rows, next }) {
    const before = this.known.size;
    const ids = new Set(rows.map(this.key));
    const least = next ? Number(next) : 0;
    for (const id of [...this.known.keys()].filter((one) => one >= least && !ids.has(one))) {
      this.remove(id);
    }
    const kept = this.known.size;
    rows.forEach((row) => this.#put(row));
    showOnly(this.box, this.known.size ? this.shown : this.hint());
    return before ? this.known.size - kept : 0;
  }

  has(id) {
    return this.known.has(id);
  }

  remove(id) {
    this.known.get(id)?.node.remove();
    this.known.delete(id);
    if (!this.known.size && !this.next) {
      showOnly(this.box, this.hint());
    }
  }
}
