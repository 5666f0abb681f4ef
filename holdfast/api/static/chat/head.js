// The head of a conversation: title, actions, unread marks and the way to the newest message.

import { byId, iconButton } from "../dom.js";
import { askForText } from "../overlay.js";

export class Head {
  constructor({ shell, chat, view, sidebar }) {
    Object.assign(this, { shell, chat, view, sidebar });
    this.seen = null;
    byId("newest").addEventListener("click", () => view.toEnd());
    byId("rename").addEventListener("click", () => this.rename());
    this.more = iconButton("more", "Conversation actions", () => this.#menu(), {
      "aria-haspopup": "menu", "aria-expanded": "false",
    });
    byId("talk-actions").append(this.more);
    // Phones show the top bar instead.
    this.moreOnTop = iconButton("more", "Conversation actions", () => (
      this.row && this.sidebar.menu(this.row, this.moreOnTop)
    ), { "aria-haspopup": "menu", "aria-expanded": "false" });
    byId("top").append(iconButton("plus", "New chat", () => byId("new").click()), this.moreOnTop);
    sidebar.onRename = () => this.rename();
    document.addEventListener("visibilitychange", () => this.#showCount(0));
  }

  get row() {
    return this.sidebar.find(this.chat.conversation);
  }

  show() {
    const title = this.row?.title ?? (this.chat.isNew ? "New conversation" : this.firstText);
    byId("rename").textContent = title;
    byId("rename").disabled = !this.row || !this.sidebar.mayChange;
    this.more.hidden = this.moreOnTop.hidden = !this.row;
    byId("pinned").hidden = !this.row?.pinned;
    this.shell.setTitle(title);
    this.#showCount(this.unseen ?? 0);
  }

  get firstText() {
    return this.chat.messages[0]?.text.split("\n")[0].slice(0, 80) || "New conversation";
  }

  // Remember how much was unread: it is read as soon as it is shown.
  open() {
    this.unread = this.row?.unread ?? 0;
    this.seen = null;
    this.show();
  }

  // A line before the first answer that was not read when the conversation was opened.
  showNew() {
    const { view, chat } = this;
    const found = chat.messages.filter(({ answers }) => answers.length);
    if (this.unread && chat.isLoaded && found.length) {
      view.firstNew = found.at(-Math.min(this.unread, found.length)).id;
      this.unread = 0;
      view.show(chat.messages);
    }
  }

  #menu() {
    if (this.row) {
      this.sidebar.menu(this.row, this.more);
    }
  }

  async rename() {
    const { row } = this;
    const title = row && await askForText({ title: "Rename", label: "Title", value: row.title });
    if (title && title !== row.title) {
      await this.sidebar.change(row, { title });
    }
  }

  search() {
    if (matchMedia("(max-width: 52rem)").matches) {
      this.shell.toggleDrawer(true);
    }
    byId("search").focus();
    byId("search").select();
  }

  // An answer came: count it if nobody sees it.
  noteAnswer() {
    if (document.hidden) {
      this.#showCount((this.unseen ?? 0) + 1);
    }
  }

  // How many answers came since the end was last in view. They are counted, since the times of one
  // answer differ between the status of its message and the lines of the conversation.
  get #missed() {
    const { messages } = this.chat;
    return messages.reduce((sum, { id, at, answers }) => {
      const seen = this.seen.get(id) ?? (at > this.seenTo ? 0 : answers.length);
      return sum + Math.max(0, answers.length - seen);
    }, 0);
  }

  #noteSeen() {
    const { messages } = this.chat;
    this.seen = new Map(messages.map(({ id, answers }) => [id, answers.length]));
    this.seenTo = messages.at(-1)?.at ?? 0;
  }

  #showCount(count) {
    this.unseen = count;
    const plain = document.title.replace(/^\(\d+\) /, "");
    document.title = count ? `(${count}) ${plain}` : plain;
  }

  showEnd(isAtEnd) {
    const { messages } = this.chat;
    if (isAtEnd || !this.seen?.size) {
      this.#noteSeen();
    }
    const missed = isAtEnd ? 0 : this.#missed;
    byId("newest").hidden = isAtEnd || !messages.length;
    byId("newest-text").textContent = missed
      ? `${missed} new ${missed === 1 ? "answer" : "answers"}`
      : "Jump to newest";
  }
}
