// The chat page: joins the conversation, the list, the field and the event stream.

import { ask, Refused } from "../ask.js";
import { byId } from "../dom.js";
import { icon } from "../icons.js";
import { keep, keepAll, keepHere, readKept, visit } from "../keep.js";
import { toast } from "../overlay.js";
import { Shell } from "../shell.js";
import { addShortcuts } from "../shortcuts.js";
import { Stream } from "../stream.js";
import { addressOf, CHANNEL, conversationInBar, newConversation, pageOf } from "./address.js";
import { agentCards, Composer } from "./composer.js";
import { names } from "./exchange.js";
import { Following } from "./following.js";
import { Head } from "./head.js";
import { Chat, randomId } from "./model.js";
import { Sidebar } from "./sidebar.js";
import { View } from "./view.js";

const READ_ONLY = "This login may only look: its role is read.";
const MOST_CARDS = 6;
const SIGNS = {
  new: "plus", archive: "archive", attach: "attach", send: "arrowUp", newest: "arrowDown",
};

const shell = new Shell({ section: "chat", title: "New conversation" });
const attempt = (work) => shell.attempt(work);
const view = new View({
  log: byId("log"),
  column: byId("column"),
  empty: byId("empty"),
  onEnd: (isAtEnd) => {
    head.showEnd(isAtEnd);
    following.markRead();
  },
  onTop: () => attempt(() => following.loadOlder()),
});
const chat = new Chat((changed) => following.draw(changed));
const sidebar = new Sidebar({
  channel: CHANNEL,
  attempt,
  onOpen: (conversation, reveal) => go(conversation, reveal),
  onChanged: () => {
    head.show();
    following.markRead();
  },
  onDeleted: (conversation) => conversation === chat.conversation && startNew(),
});
const composer = new Composer({ onSend: send });
const head = new Head({ shell, chat, view, sidebar });
const following = new Following({ attempt, chat, view, sidebar, head, shell });

// Resolved once a conversation is open: until then, a message has no address.
let markOpened;
const opened = new Promise((resolve) => {
  markOpened = resolve;
});

async function open(conversation, isNew = false, reveal = undefined) {
  if (conversation !== chat.conversation) {
    following.leave();
  }
  keep("conversation", conversation);
  keep("isNew", isNew);
  view.editing = null;
  view.versions.clear();
  view.firstNew = undefined;
  view.isAtEnd = !reveal;
  sidebar.open(conversation);
  chat.open(conversation, isNew);
  composer.open(conversation);
  head.open();
  shell.toggleDrawer(false);
  markOpened();
  composer.text.focus();
  await following.catchUp();
  if (reveal && conversation === chat.conversation) {
    await following.reveal(reveal);
  }
}

// Open a conversation of the list, as a step that Back undoes.
function go(conversation, reveal) {
  if (conversation !== chat.conversation) {
    visit(pageOf(conversation));
  }
  return open(conversation, false, reveal);
}

function startNew() {
  visit("/");
  return open(newConversation(shell.session.sender), true);
}

async function post(message) {
  const { id, text, files = [], agent, edits, regenerates } = message;
  const body = { messageId: id, ...addressOf(message.conversation, shell.session.sender) };
  Object.assign(body, { regenerates, edits, agent: agent || undefined });
  if (!regenerates) {
    body.message = text || undefined;
    body.files = files.length ? files.map((file) => file.id) : undefined;
  }
  try {
    await ask("/api/message", { method: "POST", body });
  } catch (error) {
    // Known already: the first try had arrived, and only its answer was lost.
    const isKnown = error instanceof Refused && error.status === 409
      && error.message.startsWith("duplicate");
    if (!isKnown) {
      const isRefused = error instanceof Refused && error.status < 500;
      chat.noteFailure(id, isRefused ? error.message : "no connection", isRefused);
      return;
    }
  }
  chat.noteArrival(id);
  if (message.conversation === chat.conversation) {
    keepHere("conversation", message.conversation, pageOf(message.conversation));
  }
  sidebar.refreshSoon();
}

async function send({ text, files, agent, ...further }) {
  await opened;
  const { conversation } = chat;
  const id = `web_${randomId(12)}`;
  view.isAtEnd = true;
  view.firstNew = undefined;
  const at = Date.now();
  chat.put({ id, text, files, agent, at, state: "sending", conversation, ...further });
  view.toEnd();
  postInOrder(id);
}

function sendAgain({ id }) {
  chat.put({ ...chat.sent.get(id), state: "sending", error: undefined });
  postInOrder(id);
}

// One after the other: two requests at once may arrive in another order.
let posting = Promise.resolve();
function postInOrder(id) {
  posting = posting.then(() => chat.sent.has(id) && post(chat.sent.get(id)));
}

// A new turn with the same text; the old answer stays as a version.
function regenerate(message) {
  return send({ text: message.text, files: message.files, regenerates: message.id });
}

function resend(message, text) {
  edit(null);
  composer.text.focus();
  return send({ text, files: message.files, edits: message.id });
}

function edit(message) {
  const before = view.editing;
  view.editing = message?.id ?? null;
  view.show(chat.messages);
  if (message) {
    byId("column").querySelector(".editor textarea")?.focus();
  } else if (before) {
    byId("column").querySelector(`[data-message="${CSS.escape(before)}"] [data-key=edit]`)?.focus();
  }
}

// Retry a message. If one of its calls may have happened, ask the person first.
async function retry(message, assume) {
  const path = `/api/queue/dead/${message.eventId}/retry`;
  const body = assume && { assume };
  const done = await attempt(() => ask(path, { method: "POST", body }).catch((error) => {
    if (error.status !== 409) {
      throw error;
    }
    chat.askWhetherDone(message.id);
  }));
  if (done) {
    chat.noteRetry(message.id);
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
  await following.updateStatus(id);
}

async function signal(messageId, name, value) {
  const path = `/api/message/${encodeURIComponent(messageId)}/signal`;
  await attempt(() => ask(path, { method: "POST", body: { name, value } }));
  await following.updateAround(messageId);
}

async function listAgents() {
  const agents = await attempt(() => ask("/api/agents"));
  const teams = await attempt(() => ask("/api/teams"));
  composer.showAgents(agents ?? {}, teams ?? {});
  const entries = composer.mentions.known;
  entries.forEach(({ id, name }) => names.set(id, name));
  view.show(chat.messages);
  byId("cards").replaceChildren(...(entries.length > 1
    ? agentCards(entries.slice(0, MOST_CARDS), (one) => {
      composer.choose(one.default ? "" : one.id);
      composer.text.focus();
    })
    : []));
}

// The page offers what the role allows, and nothing else.
async function offerWhatIsAllowed() {
  await shell.start();
  chat.readUnsent();
  const { role, isKnown } = shell.session;
  const mayWrite = role !== "read";
  byId("composer").hidden = !mayWrite;
  byId("new").hidden = !mayWrite;
  sidebar.mayChange = mayWrite;
  view.actions = {
    onFold: (message, isOpen) => following.fold(message, isOpen),
    onDetails: (message) => following.showDetails(message),
    onVersion: (message, at) => following.showVersion(message, at),
    ...(mayWrite ? {
      onStop: stop, onSendAgain: sendAgain, onDrop: ({ id }) => chat.drop(id), onEdit: edit,
      onResend: resend, onRegenerate: regenerate, onSignal: signal,
    } : {}),
    ...(role === "admin" ? { onRetry: retry } : {}),
  };
  view.show(chat.messages);
  if (isKnown && !mayWrite) {
    shell.standing = READ_ONLY;
    shell.notice("");
  }
}

async function offerFiles() {
  if (shell.role !== "read") {
    composer.allowFiles(await ask("/api/limits").catch(() => undefined));
  }
}

const stream = new Stream({
  url: `/api/events/stream?channel=${CHANNEL}`,
  position: () => readKept("position") ?? "",
  onPosition: (position) => position && keepHere("position", position),
  onFrame: (frame) => following.onFrame(frame),
  onGap: () => following.catchUp(),
  onState: (state) => {
    shell.setConnection(state);
    if (state === "live") {
      goOn();
    }
  },
});

async function goOn() {
  // Another tab may have logged somebody else in: that person's page has other texts.
  const session = await attempt(() => ask("/api/session"));
  if (session && session.name !== shell.session.name) {
    location.reload();
    return;
  }
  listAgents();
  sidebar.refresh();
  following.catchUp();
  // Messages that could not be sent for lack of a connection go without a click.
  [...chat.sent.values()].filter((one) => session && one.state === "unsent" && !one.isRefused)
    .forEach(sendAgain);
}

function step(by) {
  const rows = sidebar.order;
  const at = rows.findIndex(({ conversation }) => conversation === chat.conversation);
  const next = rows[at < 0 ? 0 : at + by];
  if (next) {
    go(next.conversation);
  }
}

function stopNewest() {
  const running = chat.unfinished.at(-1);
  if (running && view.actions.onStop) {
    stop(running);
    toast("Stopped");
  }
}

function editNewest() {
  const own = chat.messages.filter(({ id }) => !id.startsWith("line-")).at(-1);
  const isEnded = own && !["sending", "unsent"].includes(own.state)
    && !chat.unfinished.includes(own);
  if (isEnded && view.actions.onEdit) {
    edit(own);
  }
}

addShortcuts(
  { keys: "Mod+K", label: "Search conversations", run: () => head.search() },
  { keys: "/", label: "Write a message", run: () => composer.text.focus() },
  { keys: "Mod+Shift+O", label: "New chat", run: startNew },
  { keys: "Alt+ArrowUp", label: "Previous conversation", run: () => step(-1) },
  { keys: "Alt+ArrowDown", label: "Next conversation", run: () => step(1) },
  { keys: "Alt+End", label: "Jump to the newest message", run: () => view.toEnd() },
  { keys: "ArrowUp", label: "Edit your last message (empty field)", isTyping: true, run: editNewest,
    when: () => document.activeElement === composer.text && !composer.text.value },
  { keys: "Escape", label: "Stop the answer", isTyping: true, run: stopNewest,
    when: () => chat.unfinished.length > 0 && !composer.mentions.isOpen },
);
byId("new").addEventListener("click", startNew);
addEventListener("popstate", () => {
  keepAll();
  const conversation = conversationInBar();
  open(conversation ?? newConversation(shell.session.sender), !conversation);
});

async function start() {
  await offerWhatIsAllowed();
  const named = conversationInBar();
  const kept = named ?? readKept("conversation");
  // Only the state of this tab counts: another tab may have begun the stored conversation since.
  const isNew = kept ? !named && (history.state?.isNew ?? false) : true;
  await open(kept ?? newConversation(shell.session.sender), isNew);
  await Promise.all([listAgents(), sidebar.refresh(), offerFiles()]);
  stream.open();
  // A message that was being sent when the page went away: the server knows whether it arrived.
  for (const { id } of [...chat.sent.values()].filter((one) => one.state === "sending")) {
    postInOrder(id);
  }
}

for (const [id, name] of Object.entries(SIGNS)) {
  byId(id).prepend(icon(name));
}
composer.text.focus();
start();
