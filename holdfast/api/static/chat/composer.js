// The field for a new message: text, files, the agent it goes to. A draft per conversation is kept.

import { byId, element } from "../dom.js";
import { keep, readKept } from "../keep.js";
import { draftOf, keepDraft } from "./drafts.js";
import { Mentions } from "./mentions.js";
import { Uploads } from "./uploads.js";

export class Composer {
  // `onSend` gets {text, files, agent}.
  constructor({ onSend }) {
    this.onSend = onSend;
    this.conversation = "";
    this.text = byId("text");
    this.agent = byId("agent");
    this.mentions = new Mentions({ text: this.text, list: byId("mentions") });
    this.uploads = new Uploads({ list: byId("files"), onChange: () => this.#onChange() });
    this.#listen();
  }

  // Show the draft of a conversation. What was typed before any was open becomes its draft.
  open(conversation) {
    const isFirst = !this.conversation;
    const typed = this.text.value;
    this.conversation = conversation;
    const draft = draftOf(conversation);
    if (!isFirst || !typed) {
      this.text.value = draft.text;
    }
    this.uploads.restore(draft.files);
    this.fit();
    this.#showSend();
  }

  setText(text) {
    this.text.value = text;
    this.#onChange();
    this.text.focus();
  }

  fit() {
    this.text.style.height = "auto";
    this.text.style.height = `${this.text.scrollHeight}px`;
  }

  showAgents(agents, teams) {
    const entries = [
      ...Object.entries(agents).map(([id, one]) => ({ ...one, id, isTeam: false })),
      ...Object.entries(teams).map(([id, one]) => ({ ...one, id, isTeam: true })),
    ].map((one) => ({ ...one, name: one.name ?? one.id }));
    this.mentions.learn(entries);
    const options = entries.map((one) => optionOf(one));
    this.agent.replaceChildren(...(options.length ? options : [new Option("default", "")]));
    this.choose(readKept("agent") ?? "");
  }

  choose(id) {
    this.agent.value = id;
    if (this.agent.selectedIndex < 0) {
      this.agent.value = "";
    }
    keep("agent", this.agent.value);
  }

  allowFiles(limits) {
    this.mayAttach = Boolean(limits);
    Object.assign(this.uploads.limits, limits);
    byId("attach").hidden = !limits;
  }

  addFiles(files) {
    if (this.mayAttach && files.length) {
      this.uploads.add([...files]);
      this.text.focus();
    }
  }

  #onChange() {
    const { text, conversation } = this;
    this.fit();
    this.#showSend();
    if (conversation) {
      keepDraft(conversation, { text: text.value, files: this.uploads.ready });
    }
  }

  #showSend() {
    const isEmpty = !this.text.value.trim() && !this.uploads.ready.length;
    byId("send").classList.toggle("idle", isEmpty);
    byId("send").disabled = this.uploads.isBusy;
    byId("send").title = this.uploads.isBusy ? "The upload is not finished" : "Send";
  }

  async submit() {
    const text = this.text.value.trim();
    const files = this.uploads.ready;
    if (this.uploads.isBusy || (!text && !files.length)) {
      return;
    }
    // The server prefers `agent` to a mention in the text, so leave it out if there is a mention.
    const agent = this.mentions.findAddressed(`${text} `) ? "" : this.agent.value;
    // `onSend` keeps the message as unsent. Only then may the draft be deleted.
    await this.onSend({ text, files, agent });
    this.text.value = "";
    this.uploads.clear();
    this.#onChange();
  }

  #listen() {
    byId("composer").addEventListener("submit", async (event) => {
      event.preventDefault();
      await this.submit();
      this.text.focus();
    });
    this.text.addEventListener("input", () => this.#onChange());
    this.text.addEventListener("keydown", (event) => {
      // While a word is being composed, Enter accepts it.
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        byId("composer").requestSubmit();
      }
    });
    this.text.addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files];
      if (files.length && this.mayAttach) {
        event.preventDefault();
        this.addFiles(files);
      }
    });
    this.agent.addEventListener("change", () => keep("agent", this.agent.value));
    byId("attach").addEventListener("click", () => byId("file-input").click());
    byId("file-input").addEventListener("change", ({ target }) => {
      this.addFiles(target.files);
      target.value = "";
    });
    this.#listenToDrops();
  }

  #listenToDrops() {
    const area = byId("talk");
    const hint = byId("drop");
    const show = (isOver) => {
      hint.hidden = !isOver;
    };
    area.addEventListener("dragover", (event) => {
      if (this.mayAttach && event.dataTransfer.types.includes("Files")) {
        event.preventDefault();
        show(true);
      }
    });
    area.addEventListener("dragleave", (event) => {
      if (!area.contains(event.relatedTarget)) {
        show(false);
      }
    });
    area.addEventListener("drop", (event) => {
      show(false);
      if (this.mayAttach && event.dataTransfer.files.length) {
        event.preventDefault();
        this.addFiles(event.dataTransfer.files);
      }
    });
  }
}

function optionOf({ id, name, isTeam, default: isDefault }) {
  const label = isDefault ? `${name} (default)` : name;
  return new Option(isTeam ? `${name} (team)` : label, isDefault ? "" : id);
}

// Cards of agents and teams for an empty conversation.
export function agentCards(entries, onChoose) {
  return entries.map((one) => element("li", {}, element("button", {
    type: "button", class: "agent-card", onclick: () => onChoose(one),
  }, element("strong", { dir: "auto" }, one.name),
  element("span", { class: "soft small", dir: "auto" },
    one.description || (one.isTeam ? "A team of agents" : "An agent")))));
}
