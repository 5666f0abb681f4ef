// One message: its life as a timeline, the chain it belongs to, its conversation and its JSON.

import { ask, Refused } from "../ask.js";
import { element } from "../dom.js";
import { copyText } from "../overlay.js";
import { duration, elapsed, moment } from "./format.js";
import { confirmAction, toast } from "./forms.js";
import { askAssumption } from "./dead_actions.js";
import { action, badge, card, definitions, empty, roleNote, stateBadge,
  tabLinks } from "./parts.js";
import { addressWith, hrefOf } from "./router.js";
import { responsesOf, timelineOf, treeOf } from "./timeline.js";

const FOLLOWED = [
  "message_received", "agent_routed", "chain_step_start", "chain_step_done", "chain_handoff",
  "step_start", "step_done", "progress", "response_ready", "message_failed", "paused", "resumed",
];
const TABS = { life: "Timeline", conversation: "Conversation", json: "Raw JSON" };

function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// A command that sends the same message again. It gets its token where it is run, so that none is
// on the page.
export function curlOf(event, origin = location.origin) {
  const body = {
    message: event.message, agent: event.agent || undefined, channel: event.channel || undefined,
    sender: event.sender || undefined, senderId: event.senderId ?? undefined,
  };
  return [
    `curl ${quote(`${origin}/api/message`)}`,
    '-H "authorization: Bearer $(holdfast token --role send)"',
    "-H 'content-type: application/json'",
    `--data ${quote(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}

function messagePath(event, verb) {
  return `/api/message/${encodeURIComponent(event.messageId)}/${verb}`;
}

class MessagePage {
  constructor(page) {
    this.page = page;
    this.tab = TABS[page.query.get("tab")] ? page.query.get("tab") : "life";
    this.facts = element("aside", { class: "side", "aria-label": "Facts" });
    this.main = element("div", { class: "stack" });
    this.refresher = page.follow({
      types: FOLLOWED, interval: 700, every: 20000, work: () => this.load(),
      wants: (frame) => this.isAbout(frame),
    });
  }

  // Frames name messages; a chain has several, and all of them matter here.
  isAbout(frame) {
    const named = [frame.messageId, ...(frame.messageIds ?? [])];
    return !this.event || frame.type.endsWith("sumed") || frame.type === "paused"
      || named.some((id) => this.messageIds.has(id));
  }

  async load() {
    const event = await ask(`/api/events/${encodeURIComponent(this.page.params.id)}`);
    const content = JSON.stringify(event);
    if (content === this.content) {
      return;
    }
    this.content = content;
    this.event = event;
    this.messageIds = new Set(idsIn(event.tree, [event.messageId]));
    this.show();
  }

  show() {
    const { event, page } = this;
    page.head(`Message ${event.id}`, { lead: event.messageId ?? "", actions: this.buttons() });
    this.facts.replaceChildren(this.factsCard());
    if (!this.main.isConnected) {
      const links = Object.entries(TABS).map(([id, name]) => (
        { id, name, href: addressWith({ tab: id === "life" ? "" : id }) }));
      page.body.replaceChildren(element("div", { class: "stack" },
        roleNote(page.session, "admin", "Cancelling, retrying and replaying:"),
        this.textCard(), tabLinks("Parts of this message", links, this.tab),
        element("div", { class: "with-side" }, this.main, this.facts)));
    }
    this.showTab();
  }

  textCard() {
    const { event } = this;
    return element("section", { class: "card message-text", "aria-label": "Text of the message" },
      element("p", { class: "soft small" }, element("span", { dir: "auto" }, event.sender || "–"),
        event.agent ? ` to ${event.agent} on ${event.channel}` : ` on ${event.channel}`),
      element("p", { class: "text", dir: "auto" }, event.message || "(no text)"));
  }

  factsCard() {
    const { event } = this;
    const link = (href, text) => element("a", { href }, text);
    return card("Facts", [definitions([
      ["State", element("span", {}, stateBadge(event.state), " ",
        event.outcome && event.outcome !== event.state ? badge(event.outcome) : "",
        event.paused ? badge("paused", "wait") : "")],
      ["Queue", event.queue],
      ["Agent", event.agent && event.queue === "inbox"
        ? link(hrefOf("agents", event.agent), event.agent) : event.agent],
      ["Channel", event.channel],
      ["Sender", event.sender && link(
        `/console/messages?${new URLSearchParams({ sender: event.sender })}`, event.sender)],
      ["Conversation", event.conversation],
      ["Lane", event.lane],
      ["Attempts", `${event.attempts} of ${event.maxAttempts}`],
      ["Received", moment(event.receivedAt)],
      ["Finished", event.finishedAt === null ? "" : moment(event.finishedAt)],
      [event.finishedAt === null ? "So far" : "Took", event.finishedAt === null
        ? elapsed(event.receivedAt) : duration(event.finishedAt - event.receivedAt)],
      ["Worker", event.worker],
    ])]);
  }

  showTab() {
    if (this.tab === "json") {
      this.main.replaceChildren(rawCard(this.event));
    } else if (this.tab === "conversation") {
      this.showConversation();
    } else {
      this.main.replaceChildren(
        ...[treeOf(this.event), timelineOf(this.event), responsesOf(this.event)].filter(Boolean));
    }
  }

  async showConversation() {
    const { event } = this;
    let lines = [];
    try {
      lines = event.conversation
        ? await ask(`/api/conversations/${encodeURIComponent(event.conversation)}/messages`) : [];
    } catch (error) {
      if (!(error instanceof Refused) || ![403, 404].includes(error.status)) {
        throw error;
      }
    }
    this.main.replaceChildren(card("Conversation", [lines.length
      ? conversationOf(lines, event)
      : empty("No lines to show", "Only conversations that came by HTTP are kept as one.",
        { icon: "chat" })], { class: "conversation" }));
  }

  buttons() {
    const { event, page } = this;
    const { cancel, retry, discard, replay } = event.actions;
    const offer = (isOffered, label, onclick, tone = "") => (
      isOffered ? action(page.session, { label, onclick, tone, needed: "admin" }) : "");
    return [
      offer(cancel, "Cancel", () => this.cancel(), "danger"),
      offer(retry, "Retry", () => this.retry(), "primary"),
      offer(discard, "Discard", () => this.discard()),
      offer(replay, "Replay", () => this.replay()),
      action(page.session, {
        label: "Copy as curl", needed: "read",
        onclick: () => copyText(curlOf(event), "Command copied"),
      }),
    ];
  }

  async cancel() {
    const { event } = this;
    const text = "Its worker loses the message at once. It becomes a dead letter, which can be"
      + " retried.";
    const path = event.queue === "inbox" && event.messageId
      ? messagePath(event, "stop") : `/api/queue/processing/${event.id}/kill`;
    await confirmAction({ title: "Cancel this message?", text, confirm: "Cancel message" },
      () => ask(path, { method: "POST" }));
    await this.refresher.now();
  }

  async retry() {
    const { event } = this;
    const assume = event.actions.needsAssume ? await askAssumption(event.agent || "It") : undefined;
    if (assume !== "") {
      const body = assume ? { assume } : {};
      await ask(`/api/queue/dead/${event.id}/retry`, { method: "POST", body });
      toast("Retried, with all attempts");
      await this.refresher.now();
    }
  }

  async discard() {
    const text = "Text and error are deleted. Only ids and times stay.";
    await confirmAction({ title: "Discard this dead letter?", text, confirm: "Discard" },
      () => ask(`/api/queue/dead/${this.event.id}`, { method: "DELETE" }));
    await this.refresher.now();
  }

  async replay() {
    const made = await ask(`/api/events/${this.event.id}/replay`, { method: "POST" });
    toast(`Sent again as message ${made.id}`, {
      action: "Open", run: () => this.page.go(hrefOf("messages", made.id)),
    });
  }
}

function idsIn(tree, found) {
  if (tree) {
    found.push(tree.messageId);
    tree.children.forEach((child) => idsIn(child, found));
  }
  return found;
}

function conversationOf(lines, event) {
  return element("ol", { class: "lines" }, ...[...lines].reverse().map((line) => element("li", {
    class: `line-of-talk ${line.role}`,
    "aria-current": line.messageId === event.messageId && "true",
  },
  element("p", { class: "soft small" },
    element("span", { dir: "auto" }, line.role === "user" ? line.sender : line.agent), " · ",
    moment(line.timestamp), line.status === "dead" ? badge("dead", "bad") : ""),
  element("p", { class: "text", dir: "auto" }, line.message))));
}

function rawCard(event) {
  const text = JSON.stringify(event.raw, null, 2);
  const copy = element("button", {
    type: "button", class: "button small", onclick: () => copyText(text, "JSON copied"),
  }, "Copy");
  return card("Payload as stored", [element("pre", { class: "raw", tabindex: "0" }, text)],
    { actions: [copy] });
}

export async function open(page) {
  await new MessagePage(page).refresher.first();
}
