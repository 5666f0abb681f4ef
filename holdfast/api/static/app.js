// The chat page: sends messages, follows the event stream and shows one conversation at a time.

import { ask, Refused } from "./ask.js";
import { Chat, randomId } from "./chat.js";
import { ConversationList } from "./conversations.js";
import { keep, readKept, readStored, store } from "./keep.js";
import { Stream } from "./stream.js";
import { codeElements, element, View } from "./view.js";

const CHANNEL = "web";
const PAGE = 100;
const REFRESH_AFTER = 300;
const LINES = {
  connecting: "connecting",
  live: "live",
  away: "no connection, trying again",
  out: "not logged in",
};
const LOG_IN =
  "This browser is not logged in. Run `holdfast login` and open the link that it prints.";
const READ_ONLY = "This login may only look: its role is read.";
const byId = (id) => document.getElementById(id);

const view = new View({
  log: byId("log"),
  empty: byId("empty"),
  onRetry: retry,
  onSendAgain: sendAgain,
  onStop: stop,
});
const chat = new Chat((messages) => view.show(messages));
const list = new ConversationList({
  panel: byId("conversations"),
  channel: CHANNEL,
  onOpen: (conversation) => openConversation(conversation),
});
const text = byId("text");

let role = "admin";
// The only name that this session may speak under, if it is bound to one.
let boundSender = null;
let isLoggedOut = false;

function showConnection(state) {
  byId("line").dataset.state = state;
  byId("line-text").textContent = LINES[state];
}

function notice(message) {
  const shown = message || (role === "read" ? READ_ONLY : "");
  byId("notice").replaceChildren(...codeElements(shown));
  byId("notice").hidden = !shown;
}

// Run a request. A refusal is shown once, in one place.
async function attempt(work) {
  try {
    const result = await work();
    isLoggedOut = false;
    notice("");
    return result;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      isLoggedOut = true;
      showConnection("out");
      notice(LOG_IN);
      byId("notice").append(" ", element("a", { href: "/login" }, "Log in"));
    } else if (error instanceof Refused) {
      notice(error.message);
    }
    return undefined;
  }
}

// A conversation is named channel:sender/topic. The server builds the same name from the message.
function address(conversation) {
  const [sender, ...topic] = conversation.slice(CHANNEL.length + 1).split("/");
  const who = boundSender ? { sender: boundSender } : { sender: "web", senderId: sender };
  return { channel: CHANNEL, ...who, ...(topic.length ? { conversation: topic.join("/") } : {}) };
}

function newConversation() {
  const senderId = readStored("sender") ?? `web-${randomId(9)}`;
  store("sender", senderId);
  return `${CHANNEL}:${boundSender ?? senderId}/${randomId(12)}`;
}

function openConversation(conversation, isNew = false) {
  keep("conversation", conversation);
  keep("isNew", isNew);
  byId("conversations").hidden = true;
  chat.open(conversation, isNew);
  text.focus();
  return catchUp();
}

async function post(message) {
  const body = { message: message.text, messageId: message.id, ...address(message.conversation) };
  if (message.agent) {
    body.agent = message.agent;
  }
  try {
    await ask("/api/message", { method: "POST", body });
    notice("");
  } catch (error) {
    // Known already: the first try had arrived, and only its answer was lost.
    if (!(error instanceof Refused && error.status === 409)) {
      chat.failed(message.id, error instanceof Refused ? error.message : "no connection");
      return;
    }
  }
  chat.arrived(message.id);
}

function send(message) {
  const { conversation } = chat;
  const id = `web_${randomId(12)}`;
  const agent = byId("agent").value;
  chat.put({ id, text: message, agent, at: Date.now(), state: "sending", conversation });
  byId("log").scrollTop = byId("log").scrollHeight;
  return post(chat.sent.get(id));
}

function sendAgain({ id }) {
  const message = { ...chat.sent.get(id), state: "sending", error: undefined };
  chat.put(message);
  return post(message);
}

async function retry(message) {
  const path = `/api/queue/dead/${message.eventId}/retry`;
  const done = await attempt(() => ask(path, { method: "POST" }));
  if (done) {
    chat.retried(message.id);
  }
}

// Stop a message. One that has just ended is shown as it ended.
async function stop({ id }) {
  const path = `/api/message/${encodeURIComponent(id)}`;
  await attempt(() => ask(`${path}/stop`, { method: "POST" }).catch((error) => {
    if (error.status !== 409) {
      throw error;
    }
  }));
  await attempt(() => updateStatus(id));
}

// Acknowledge the responses to messages of this conversation: the page shows them from now on.
async function acknowledge() {
  let since = 0;
  for (;;) {
    const page = `channel=${CHANNEL}&limit=${PAGE}&since_id=${since}`;
    const waiting = await ask(`/api/responses/pending?${page}`);
    for (const response of waiting) {
      if (chat.find(response.messageId)) {
        await ask(`/api/responses/${response.id}/ack`, { method: "POST" });
      }
      since = Math.max(since, response.id);
    }
    if (waiting.length < PAGE) {
      return;
    }
  }
}

async function updateStatus(messageId) {
  const status = await ask(`/api/message/${encodeURIComponent(messageId)}`);
  chat.applyStatus(status);
  if (status.responses.length && role !== "read") {
    await acknowledge();
  }
}

// Load the text of an answer whose beginning this page has not seen.
async function updateText(messageId) {
  const status = await ask(`/api/message/${encodeURIComponent(messageId)}`);
  for (const { id } of chat.about(status)) {
    if (id === messageId) {
      chat.applyStatus(status);
    } else {
      chat.applyHandedOn(id, status);
    }
  }
}

// Ask again for the conversation soon. Several frames in a row cost one request.
let refreshing = null;
function refreshSoon() {
  refreshing ??= setTimeout(() => {
    refreshing = null;
    chat.isNew = false;
    attempt(() => chat.refresh());
  }, REFRESH_AFTER);
}

// Load the changes that were missed while there was no connection.
async function catchUp() {
  await attempt(() => chat.refresh());
  for (const { id, state, partials } of chat.messages) {
    const isUnfinished = ["received", "routed", "working", "waiting", "retrying"].includes(state);
    // The text that was written until a message failed is not among the lines of a conversation.
    if (isUnfinished || (state === "failed" && !partials)) {
      await attempt(() => updateStatus(id));
    }
  }
}

function onFrame(frame) {
  if (chat.lacksTextBefore(frame)) {
    attempt(() => updateText(frame.messageId));
  }
  const messages = chat.apply(frame);
  if (!messages.length && frame.type === "message_received") {
    // Another tab or browser may have written to this conversation.
    refreshSoon();
  }
  if (["chain_step_done", "response_ready", "message_failed"].includes(frame.type)) {
    for (const { id } of messages) {
      attempt(() => updateStatus(id));
    }
  }
}

async function listAgents() {
  const agents = await attempt(() => ask("/api/agents"));
  const teams = await attempt(() => ask("/api/teams"));
  const select = byId("agent");
  const options = Object.entries(agents ?? {}).map(([id, agent]) => {
    const label = agent.default ? `${agent.name ?? id} (default)` : agent.name ?? id;
    return new Option(label, agent.default ? "" : id);
  });
  for (const [id, team] of Object.entries(teams ?? {})) {
    options.push(new Option(`${team.name ?? id} (team)`, id));
  }
  select.replaceChildren(...(options.length ? options : [new Option("default", "")]));
  select.value = readKept("agent") ?? "";
  if (select.selectedIndex < 0) {
    select.value = "";
  }
}

// The page offers what the role allows, and nothing else.
async function offerWhatIsAllowed() {
  const session = await attempt(() => ask("/api/session"));
  role = session?.role ?? "admin";
  boundSender = session?.sender ?? null;
  byId("logout").hidden = !session?.isSession;
  byId("logout").title = session ? `Logged in as ${session.name} (${session.role})` : "";
  byId("access").hidden = session?.role !== "admin";
  byId("composer").hidden = role === "read";
  view.mayRetry = role === "admin";
  view.mayStop = role !== "read";
  view.show(chat.messages);
  if (session) {
    notice("");
  }
}

async function logOut() {
  await ask("/logout", { method: "POST" });
  location.reload();
}

const stream = new Stream({
  url: `/api/events/stream?channel=${CHANNEL}`,
  position: () => readKept("position") ?? "",
  onPosition: (position) => {
    history.replaceState({ ...history.state, position: position || history.state?.position }, "");
  },
  onFrame,
  onGap: catchUp,
  onState: (state) => {
    // A browser does not tell why it was refused a stream.
    showConnection(state === "away" && isLoggedOut ? "out" : state);
    if (state === "live") {
      listAgents();
      catchUp();
    }
  },
});

function fit() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const message = text.value.trim();
  if (message) {
    // Kept as unsent before the draft goes.
    send(message);
    text.value = "";
    keep("draft", "");
    fit();
  }
  text.focus();
});
text.addEventListener("input", () => {
  keep("draft", text.value);
  fit();
});
text.addEventListener("keydown", (event) => {
  // While a word is being composed, Enter accepts it.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    byId("composer").requestSubmit();
  }
});
byId("agent").addEventListener("change", () => keep("agent", byId("agent").value));
byId("new").addEventListener("click", () => openConversation(newConversation(), true));
byId("list").addEventListener("click", () => {
  const panel = byId("conversations");
  panel.hidden = !panel.hidden;
  if (!panel.hidden) {
    attempt(() => list.refresh(chat.conversation));
  }
});
byId("logout").addEventListener("click", logOut);

async function start() {
  text.value = readKept("draft") ?? "";
  fit();
  await offerWhatIsAllowed();
  const kept = readKept("conversation");
  await openConversation(kept ?? newConversation(), kept ? readKept("isNew") ?? false : true);
  await listAgents();
  stream.open();
  // A message that was being sent when the page went away: the server knows whether it arrived.
  for (const message of [...chat.sent.values()].filter((one) => one.state === "sending")) {
    await post(message);
  }
}

text.focus();
start();
