// The list of conversations, which the server keeps: any browser of the same person shows them.

import { askPage } from "./ask.js";
import { button, element } from "./view.js";

const PAGE = 30;

export class ConversationList {
  constructor({ panel, channel, onOpen }) {
    Object.assign(this, { panel, channel, onOpen });
    this.list = element("ul", { class: "conversations" });
    this.more = button("Show more", () => this.#load());
    panel.append(this.list, this.more);
  }

  async refresh(current) {
    this.current = current;
    this.next = undefined;
    await this.#load(true);
  }

  async #load(isFirst = false) {
    const before = this.next ? `&before_id=${this.next}` : "";
    const path = `/api/conversations?channel=${this.channel}&limit=${PAGE}${before}`;
    const { rows, next } = await askPage(path);
    this.next = next;
    this.more.hidden = !next;
    const items = rows.map((one) => this.#item(one));
    if (isFirst) {
      const none = element("li", {}, "No conversations yet.");
      this.list.replaceChildren(...(items.length ? items : [none]));
    } else {
      this.list.append(...items);
    }
  }

  #item(one) {
    const isCurrent = one.conversation === this.current;
    const time = new Date(one.updatedAt).toLocaleString();
    const open = button(one.title, () => this.onOpen(one.conversation), {
      dir: "auto",
      title: time,
      "aria-current": isCurrent ? "true" : undefined,
    });
    return element("li", {}, open);
  }
}
