// The chat page: what is written goes to POST /api/message, what comes back is heard on the event stream.

import { ask, Refused } from "./ask.js";
import { Chat, randomId } from "./chat.js";
import { Stream } from "./stream.js";
import { element, View, written } from "./view.js";

const CHANNEL = "web";
const PAGE = 100;
const LINES = { connecting: "connecting", live: "live", away: "no connection, trying again", out: "not logged in" };
const LOG_IN = "This browser is not logged in. Run `holdfast login` and open the link that it prints.";
const READ_ONLY = "This login may only look: its role is read.";
const of = (id) => document.getElementById(id);

const view = new View({ log: of("log"), empty: of("empty"), onRetry: retry, onSendAgain: sendAgain });
const chat = new Chat((messages) => view.show(messages));

function line(state) {
  of("line").dataset.state = state;
  of("line-text").textContent = LINES[state];
}

let role = "admin";
// The only name that this session may speak under, if it is bound to one.
let sender = null;

function notice(text) {
  const shown = text || (role === "read" ? READ_ONLY : "");
  of("notice").replaceChildren(...written(shown));
  of("notice").hidden = !shown;
}

// Everything that was refused is said once, in one place.
let isLoggedOut = false;
async function said(work) {
  try {
    const told = await work();
    isLoggedOut = false;
    notice("");
    return told;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      isLoggedOut = true;
      line("out");
      notice(LOG_IN);
      of("notice").append(" ", element("a", { href: "/login" }, "Log in"));
    } else if (error instanceof Refused) {
      notice(error.message);
    }
    return undefined;
  }
}

async function post(message) {
  const own = sender ? { sender } : { sender: "web", senderId: chat.senderId };
  const body = { message: message.text, channel: CHANNEL, ...own };
  body.messageId = message.id;
  if (message.agent) {
    body.agent = message.agent;
  }
  try {
    await ask("/api/message", { method: "POST", body });
    notice("");
  } catch (error) {
    // Known already: the first try had arrived, and only its answer was lost.
    if (!(error instanceof Refused && error.status === 409)) {
      chat.put(message.id, { state: "unsent", error: error instanceof Refused ? error.message : "no connection" });
      return;
    }
  }
  if (chat.find(message.id)?.state === "sending") {
    chat.put(message.id, { state: "received" });
  }
}

function send(text) {
  const message = { id: `web_${randomId(12)}`, text, agent: of("agent").value, at: Date.now(), state: "sending" };
  chat.put(message.id, message);
  of("log").scrollTop = of("log").scrollHeight;
  return post(message);
}

function sendAgain(message) {
  chat.put(message.id, { state: "sending", error: undefined });
  return post(message);
}

async function retry(message) {
  const done = await said(() => ask(`/api/queue/dead/${message.eventId}/retry`, { method: "POST" }));
  if (done) {
    chat.put(message.id, { state: "received", error: undefined, eventId: undefined });
  }
}

// All that waits for this browser, shown and then acknowledged: what is not acknowledged comes again.
async function fetchAnswers() {
  let since = 0;
  for (;;) {
    const waiting = await ask(`/api/responses/pending?channel=${CHANNEL}&limit=${PAGE}&since_id=${since}`);
    for (const response of waiting) {
      if (chat.take(response)) {
        await ask(`/api/responses/${response.id}/ack`, { method: "POST" });
      }
      since = Math.max(since, response.id);
    }
    if (waiting.length < PAGE) {
      return;
    }
  }
}

// One fetch at a time, and another one after it for what came meanwhile.
let fetching = null;
let again = false;
async function gather() {
  if (role === "read") {
    return;
  }
  if (fetching) {
    again = true;
    return;
  }
  do {
    again = false;
    fetching = said(fetchAnswers);
    await fetching;
  } while (again);
  fetching = null;
}

// Frames that are not kept any more cannot tell: then the lists do.
async function catchUp() {
  await gather();
  const open = chat.unfinished;
  if (!open.length) {
    return;
  }
  const answered = (await said(() => ask("/api/responses?limit=1000"))) ?? [];
  for (const response of answered) {
    if (open.some(({ id }) => id === response.messageId || response.messageIds?.includes(id))) {
      chat.take(response);
    }
  }
  const dead = (await said(() => ask("/api/queue/dead?limit=1000"))) ?? [];
  for (const letter of dead) {
    if (chat.find(letter.data.messageId)) {
      chat.put(letter.data.messageId, { state: "failed", error: letter.failedReason, eventId: letter.id });
    }
  }
}

async function listAgents() {
  const [agents, teams] = [await said(() => ask("/api/agents")), await said(() => ask("/api/teams"))];
  const select = of("agent");
  const options = Object.entries(agents ?? {}).map(([id, agent]) => {
    const label = agent.default ? `${agent.name ?? id} (default)` : agent.name ?? id;
    return new Option(label, agent.default ? "" : id);
  });
  for (const [id, team] of Object.entries(teams ?? {})) {
    options.push(new Option(`${team.name ?? id} (team)`, id));
  }
  select.replaceChildren(...(options.length ? options : [new Option("default", "")]));
  select.value = chat.agent;
  if (select.selectedIndex < 0) {
    select.value = "";
  }
}

// The page offers what the role allows, and nothing else.
async function offerWhatIsAllowed() {
  const session = await said(() => ask("/api/session"));
  role = session?.role ?? "admin";
  sender = session?.sender ?? null;
  of("logout").hidden = !session?.isSession;
  of("logout").title = session ? `Logged in as ${session.name} (${session.role})` : "";
  of("composer").hidden = role === "read";
  view.mayRetry = role === "admin";
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
  position: () => chat.position,
  onPosition: (position) => {
    chat.position = position || chat.position;
  },
  onFrame: (frame) => {
    chat.hear(frame);
    if (frame.type === "response_ready") {
      gather();
    }
  },
  onGap: catchUp,
  onState: (state) => {
    // A browser does not tell why it was refused a stream.
    line(state === "away" && isLoggedOut ? "out" : state);
    if (state === "live") {
      listAgents();
      catchUp();
    }
  },
});

const text = of("text");

function fit() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
}

of("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const written = text.value.trim();
  if (written) {
    text.value = "";
    fit();
    send(written);
  }
  text.focus();
});
text.addEventListener("input", fit);
text.addEventListener("keydown", (event) => {
  // While a word is being composed, Enter accepts it.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    of("composer").requestSubmit();
  }
});
of("agent").addEventListener("change", () => {
  chat.agent = of("agent").value;
});
of("clear").addEventListener("click", () => {
  chat.clear();
  text.focus();
});

of("logout").addEventListener("click", logOut);

async function start() {
  await offerWhatIsAllowed();
  await listAgents();
  stream.open();
  // A message that was being sent when the page went away: the server knows whether it arrived.
  for (const message of chat.messages.filter((one) => one.state === "sending")) {
    await post(message);
  }
}

text.focus();
start();
