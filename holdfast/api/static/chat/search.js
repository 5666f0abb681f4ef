// Search over all conversations: titles and lines, with the words marked.

import { askPage } from "../ask.js";
import { element, skeletons, stateBox } from "../dom.js";
import { timeElement } from "../time.js";

const AFTER = 220;
const PAGE = 20;
const MOST_REQUESTS = 8;

// The text with marks. Offsets count code points.
export function withMarks(text, marks = []) {
  const signs = Array.from(text);
  const parts = [];
  let at = 0;
  for (const [start, end] of marks) {
    parts.push(plain(signs.slice(at, start)));
    parts.push(element("mark", {}, signs.slice(start, end).join("")));
    at = end;
  }
  return [...parts, plain(signs.slice(at))];
}

// A snippet is a cut piece of Markdown, which cannot be rendered: drop its markup.
function plain(signs) {
  return signs.join("").replace(/\*\*|`/g, "");
}

export class SearchResults {
  constructor({ input, list, channel, attempt, link, onEmpty }) {
    Object.assign(this, { input, list, channel, attempt, link, onEmpty });
    input.addEventListener("input", () => this.#soon());
    input.addEventListener("keydown", (event) => this.#onKey(event));
  }

  get words() {
    return this.input.value.trim();
  }

  get isActive() {
    return Boolean(this.words);
  }

  #onKey(event) {
    if (event.key === "Escape") {
      // The shortcut, which stops the answer, leaves out what is prevented.
      event.preventDefault();
      if (this.input.value) {
        event.stopPropagation();
        this.input.value = "";
        this.onEmpty();
      }
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      const first = this.list.querySelector("a.conversation");
      first?.focus();
      if (event.key === "Enter") {
        first?.click();
      }
    }
  }

  #soon() {
    clearTimeout(this.timer);
    if (!this.isActive) {
      this.onEmpty();
      return;
    }
    this.timer = setTimeout(() => this.attempt(() => this.#run(this.words)), AFTER);
  }

  // One request searches a bounded number of conversations: go on until a page is full.
  async #run(words) {
    this.list.replaceChildren(skeletons(4, "tall"));
    const found = [];
    let next;
    for (let nth = 0; nth < MOST_REQUESTS && found.length < PAGE; nth += 1) {
      const before = next ? `&before_id=${next}` : "";
      const query = `q=${encodeURIComponent(words)}&limit=${PAGE}${before}`;
      const page = await askPage(`/api/conversations/search?${query}`);
      if (words !== this.words) {
        return;
      }
      found.push(...page.rows.filter(({ channel }) => channel === this.channel));
      next = page.next;
      if (!next) {
        break;
      }
    }
    this.#show(found);
  }

  #show(found) {
    const items = found.map((row) => this.#item(row));
    const none = stateBox({ icon: "search", title: "Nothing found", level: "h3",
      text: "All words have to be in the title, or in one message." });
    this.list.replaceChildren(items.length
      ? element("section", { class: "group found" },
        element("h3", { role: "status" }, `${items.length} found`), element("ul", {}, ...items))
      : none);
  }

  #item(row) {
    const title = this.link(row,
      element("span", { class: "name clip", dir: "auto" },
        ...withMarks(row.title, row.titleMarks)));
    const snippets = (row.snippets ?? []).map((one) => {
      const link = this.link(row,
        element("span", { class: "snippet", dir: "auto" }, ...withMarks(one.text, one.marks)),
        timeElement(one.timestamp, { class: "when" }));
      link.reveal = { lineId: one.lineId, messageId: one.messageId };
      return link;
    });
    return element("li", {}, title, ...snippets);
  }
}
