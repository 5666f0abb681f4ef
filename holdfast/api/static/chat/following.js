// Follows what happens to the messages in view: frames, statuses, and what was missed meanwhile.

import { ask, askPage } from "../ask.js";
import { byId } from "../dom.js";
import { CHANNEL } from "./address.js";
import { UNFINISHED } from "./model.js";
import { pathOf } from "./sidebar.js";

const PAGE = 100;
const REFRESH_AFTER = 300;
const LOOK_AGAIN_AFTER = 2000;
const STATUS_AFTER = 400;
const MOST_WATCHED = 5;
const LONGEST_SPOKEN = 240;
const MOST_PAGES_BACK = 40;
const ENDS = ["chain_step_done", "response_ready", "message_failed"];
const WORK = ["step_start", "step_done", "chain_handoff", "chain_step_start", "agent_routed"];

export class Following {
  constructor({ attempt, chat, view, sidebar, head, shell }) {
    Object.assign(this, { attempt, chat, view, sidebar, head, shell });
    this.waiting = new Map();
    this.spoken = new Set();
    this.readTo = new Map();
    setInterval(() => this.#watch(), LOOK_AGAIN_AFTER);
    document.addEventListener("visibilitychange", () => this.markRead());
  }

  // Collect changes, and draw all of them in the next frame of the screen.
  draw(changed) {
    this.changed = changed && this.changed !== null
      ? new Set([...(this.changed ?? []), ...changed])
      : null;
    if (!this.isDrawing) {
      this.isDrawing = true;
      const later = document.hidden ? (run) => setTimeout(run, 0) : requestAnimationFrame;
      later(() => this.#drawNow());
    }
  }

  #drawNow() {
    const { changed } = this;
    this.isDrawing = false;
    this.changed = undefined;
    this.view.show(this.chat.messages, changed);
    this.head.showEnd(this.view.isAtEnd);
    this.head.showNew();
    byId("loading").hidden = this.chat.isLoaded;
    byId("empty").hidden = this.chat.messages.length > 0 || !this.chat.isLoaded;
  }

  onFrame(frame) {
    if (frame.type.startsWith("conversation_")) {
      this.#onConversation(frame);
      return;
    }
    if (this.chat.lacksTextBefore(frame)) {
      this.attempt(() => this.#updateText(frame.messageId));
    }
    const messages = this.chat.apply(frame);
    if (!messages.length && frame.type === "message_received") {
      // Another tab or browser may have written to this conversation.
      this.#refreshSoon();
    }
    if (ENDS.includes(frame.type) || frame.type === "message_received") {
      this.sidebar.refreshSoon();
    }
    for (const { id } of messages) {
      if (ENDS.includes(frame.type)) {
        this.updateStatus(id);
      } else if (WORK.includes(frame.type)) {
        this.#updateSoon(id);
      }
    }
  }

  #onConversation({ type, conversation }) {
    this.sidebar.refreshSoon();
    if (type === "conversation_deleted" && conversation === this.chat.conversation) {
      this.chat.open(conversation, true);
      this.head.show();
    }
  }

  // Several frames in a row cost one request.
  #updateSoon(id) {
    if (!this.waiting.has(id)) {
      this.waiting.set(id, setTimeout(() => {
        this.waiting.delete(id);
        this.updateStatus(id);
      }, STATUS_AFTER));
    }
  }

  // Positions and waits have no frames: look again while something is unfinished.
  #watch() {
    if (document.hidden || byId("line").dataset.state !== "live") {
      return;
    }
    for (const { id } of this.chat.unfinished.slice(-MOST_WATCHED)) {
      this.updateStatus(id);
    }
  }

  async updateStatus(messageId) {
    const path = `/api/message/${encodeURIComponent(messageId)}?html=true`;
    const status = await this.attempt(() => ask(path));
    if (!status) {
      return;
    }
    const before = this.chat.find(messageId)?.state;
    this.chat.applyStatus(status);
    const after = this.chat.find(messageId)?.state;
    if (UNFINISHED.includes(before) && ["answered", "failed", "silent"].includes(after)) {
      this.#onEnd(messageId);
    }
    if (status.responses.length && this.shell.role !== "read") {
      await this.attempt(() => this.#acknowledge());
    }
  }

  // Update the message in view to which a message belongs, which an agent may have handed on.
  async updateAround(messageId) {
    const found = this.chat.about({ messageId });
    await Promise.all(found.map(({ id }) => this.updateStatus(id)));
  }

  // An answer is complete: say so to people who listen, and mark it as read.
  #onEnd(messageId) {
    const { answers, state, error } = this.chat.find(messageId);
    const last = answers.at(-1);
    const text = last ? `${last.agent} answered: ${last.text}` : `${state}: ${error ?? ""}`;
    if (!this.spoken.has(messageId)) {
      this.spoken.add(messageId);
      byId("announcer").textContent = [...text].slice(0, LONGEST_SPOKEN).join("");
    }
    this.hasUnread = true;
    this.head.noteAnswer();
    this.#refreshSoon();
  }

  // Acknowledge the responses to messages of this conversation: the page shows them from now on.
  async #acknowledge() {
    let since = 0;
    while (since !== null) {
      const page = `channel=${CHANNEL}&limit=${PAGE}&since_id=${since}`;
      const { rows, next } = await askPage(`/api/responses/pending?${page}`);
      for (const response of rows) {
        if (this.chat.find(response.messageId)) {
          await ask(`/api/responses/${response.id}/ack`, { method: "POST" });
        }
      }
      since = next;
    }
  }

  // Load the text of an answer whose beginning this page has not seen.
  async #updateText(messageId) {
    const status = await ask(`/api/message/${encodeURIComponent(messageId)}?html=true`);
    for (const { id } of this.chat.about(status)) {
      if (id === messageId) {
        this.chat.applyStatus(status);
      } else {
        this.chat.applyHandedOn(id, status);
      }
    }
  }

  #refreshSoon(after = REFRESH_AFTER) {
    const { conversation } = this.chat;
    this.refreshing ??= setTimeout(() => {
      this.refreshing = undefined;
      if (conversation === this.chat.conversation) {
        this.chat.isNew = false;
        this.refresh();
      }
    }, after);
  }

  async refresh() {
    await this.attempt(() => this.chat.refresh());
    if (this.chat.isIncomplete) {
      this.#refreshSoon(LOOK_AGAIN_AFTER);
    }
    this.markRead();
  }

  // Load the changes that were missed while there was no connection.
  async catchUp() {
    await this.refresh();
    for (const { id, state, partials } of this.chat.messages) {
      // The lines of a conversation lack the text that a failed message wrote before it failed.
      if (UNFINISHED.includes(state) || (state === "failed" && !partials)) {
        await this.updateStatus(id);
      }
    }
    await this.completeTeams();
  }

  // The lines of a team include what agents wrote to each other; the status has only the answers.
  async completeTeams() {
    for (const { id, answers, details } of this.chat.messages) {
      if (answers.length > 1 && !details && !id.startsWith("line-")) {
        await this.updateStatus(id);
      }
    }
  }

  async loadOlder() {
    if (await this.chat.loadOlder()) {
      await this.completeTeams();
      // Short messages may leave the top in view.
      requestAnimationFrame(() => this.view.isNearTop && this.attempt(() => this.loadOlder()));
    }
  }

  get #mayRead() {
    return !document.hidden && this.view.isAtEnd && this.shell.role !== "read" && !this.chat.isNew;
  }

  // Tell the server how far this person has read, if the end is in view.
  markRead() {
    const { conversation, newestLine } = this.chat;
    const isBehind = this.hasUnread || this.sidebar.find(conversation)?.unread > 0;
    if (this.#mayRead && isBehind && newestLine > (this.readTo.get(conversation) ?? 0)) {
      this.hasUnread = false;
      this.#readTo(conversation, newestLine);
    }
  }

  async #readTo(conversation, line) {
    this.readTo.set(conversation, line);
    const options = { method: "POST", body: { readTo: line } };
    const row = await this.attempt(() => ask(pathOf(conversation), options));
    if (row && this.sidebar.find(conversation)) {
      this.sidebar.rows.set(conversation, row);
      this.sidebar.show();
    }
  }

  // Before the page shows another conversation, mark the answer that was just seen as read.
  async leave() {
    const { conversation } = this.chat;
    if (this.hasUnread && this.#mayRead) {
      const page = `${pathOf(conversation)}/messages?limit=1`;
      const [newest] = await this.attempt(() => ask(page)) ?? [];
      if (newest?.id) {
        await this.#readTo(conversation, newest.id);
      }
    }
    this.hasUnread = false;
  }

  fold({ id }, isOpen) {
    this.view.open[isOpen ? "add" : "delete"](id);
  }

  async showDetails(message) {
    if (this.view.open.has(message.id)) {
      this.view.open.delete(message.id);
    } else {
      this.view.open.add(message.id);
      await this.updateStatus(message.id);
    }
    this.view.show(this.chat.messages, new Set([message.id]));
  }

  async showVersion(message, at) {
    const known = this.view.versions.get(message.id)
      ?? { exchanges: await this.attempt(() => this.chat.loadVersions(message.id)) };
    if (known.exchanges) {
      this.view.versions.set(message.id, { ...known, at });
      this.view.show(this.chat.messages, new Set([message.id]));
    }
  }

  // Bring a line into view, which may be many pages back.
  async reveal({ lineId, messageId }) {
    for (let nth = 0; nth < MOST_PAGES_BACK; nth += 1) {
      this.view.show(this.chat.messages);
      if (this.view.reveal(messageId, lineId) || !await this.chat.loadOlder()) {
        return;
      }
    }
  }
}
