// Answers as the server renders them, and text that still grows.

import { ask } from "../ask.js";
import { codeElements, element, fromServer, iconButton } from "../dom.js";
import { icon } from "../icons.js";
import { copyText } from "../overlay.js";

const RENDER_EVERY = 600;
const COPIED_FOR = 1500;

export async function copy(text, node = undefined) {
  if (await copyText(text) && node) {
    const before = node.querySelector(".icon");
    const done = icon("check");
    before.replaceWith(done);
    setTimeout(() => done.replaceWith(before), COPIED_FOR);
  }
}

// Put a bar with the language and a copy button above each block of code.
function withBars(fragment) {
  for (const block of fragment.querySelectorAll("pre.code")) {
    const code = block.textContent;
    const box = element("div", { class: "code-box" });
    const copyButton = iconButton("copy", "Copy code", () => copy(code, copyButton), {
      class: "icon-button small",
    });
    block.tabIndex = 0;
    block.replaceWith(box);
    box.append(
      element("div", { class: "code-bar" },
        element("span", {}, block.dataset.language ?? "text"), copyButton),
      block,
    );
  }
  return fragment;
}

// Tables scroll by themselves, so that the page never does.
function withScrollingTables(fragment) {
  for (const table of fragment.querySelectorAll("table")) {
    const box = element("div", { class: "table-scroll", tabindex: "0", role: "region" });
    box.setAttribute("aria-label", "Table");
    table.replaceWith(box);
    box.append(table);
  }
  return fragment;
}

export function renderText({ html, text }) {
  if (html === undefined) {
    return element("div", { class: "prose plain", dir: "auto" }, ...codeElements(text));
  }
  const node = element("div", { class: "prose", dir: "auto" });
  node.append(withScrollingTables(withBars(fromServer(html))));
  for (const block of node.querySelectorAll("p, li, blockquote, td, th")) {
    block.dir = "auto";
  }
  // The page has headings of its own: those of an answer come below them.
  for (const heading of node.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const level = Math.min(6, Number(heading.tagName[1]) + 2);
    heading.replaceWith(element(`h${level}`, { dir: "auto" }, ...heading.childNodes));
  }
  return node;
}

// The end of the last block that is complete: at a blank line outside of fenced code.
function stableLength(text) {
  let isFenced = false;
  let at = 0;
  let stable = 0;
  for (const line of text.split("\n")) {
    if (/^\s{0,3}(```|~~~)/.test(line)) {
      isFenced = !isFenced;
    }
    at += line.length + 1;
    if (!isFenced && !line.trim()) {
      stable = Math.min(at, text.length);
    }
  }
  return stable;
}

// A text that grows: complete blocks as the server renders them, the rest as text. Each block is
// rendered once, with at most one request at a time.
export class GrowingText {
  constructor() {
    this.done = element("div", { class: "prose", dir: "auto" });
    this.tail = element("div", { class: "prose plain tail", dir: "auto" });
    this.text = "";
    this.renderedLength = 0;
  }

  show(text) {
    if (text === this.text) {
      return;
    }
    if (!text.startsWith(this.text.slice(0, this.renderedLength))) {
      this.done.replaceChildren();
      this.renderedLength = 0;
    }
    this.text = text;
    this.#showTail();
    this.#renderSoon();
  }

  #showTail() {
    this.tail.replaceChildren(...codeElements(this.text.slice(this.renderedLength)));
  }

  #renderSoon() {
    this.timer ??= setTimeout(async () => {
      await this.#render();
      this.timer = undefined;
      if (this.tail.isConnected && stableLength(this.text.slice(this.renderedLength))) {
        this.#renderSoon();
      }
    }, RENDER_EVERY);
  }

  async #render() {
    const from = this.renderedLength;
    const block = this.text.slice(from, from + stableLength(this.text.slice(from)));
    if (!block.trim() || !this.tail.isConnected) {
      return;
    }
    const answer = await ask("/api/render", { method: "POST", body: { text: block } })
      .catch(() => undefined);
    // The text may have been begun anew meanwhile.
    if (answer && this.renderedLength === from && this.text.startsWith(block, from)) {
      this.done.append(renderText(answer));
      this.renderedLength = from + block.length;
      this.#showTail();
    }
  }
}
