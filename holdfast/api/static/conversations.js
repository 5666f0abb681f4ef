// The list of conversations, which the server keeps: any browser of the same person shows them.

import { askPage } from "./ask.js";
import { element } from "./view.js";

const PAGE = 30;

export class ConversationList {
  constructor({ panel, channel, onOpen }) {
    Object.assign(this, { panel, channel, onOpen });
    this.list = element("ul", { class: "conversations" });
    this.more = element("button", { type: "button", class: "quiet", onclick: () => this.#load() }, "Show more");
    panel.append(this.list, this.more);
  }

  async refresh(current) {
    this.current = current;
    this.next = undefined;
    await this.#load(true);
  }

  async #load(isFirst = false) {
    const before = this.next ? `&before_id=${this.next}` : "";
    const { rows, next } = await askPage(`/api/conversations?channel=${this.channel}&limit=${PAGE}${before}`);
    this.next = next;
    this.more.hidden = !next;
    const items = rows.map((one) => this.#item(one));
    if (isFirst) {
      this.list.replaceChildren(...(items.length ? items : [element("li", {}, "No conversations yet.")]));
    } else {
      this.list.append(...items);
    }
  }

  #item(one) {
    const isCurrent = one.conversation === this.current;
    const time = new Date(one.updatedAt).toLocaleString();
    const open = element(
      "button",
      {
        type: "button",
        class: "quiet",
        dir: "auto",
        title: time,
        "aria-current": isCurrent ? "true" : undefined,
        onclick: () => this.onOpen(one.conversation),
      },
      one.title,
    );
    return element("li", {}, open);
  }
}
