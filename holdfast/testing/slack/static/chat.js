// The chat page of the local Slack: polls the rooms, shows one with its threads, sends messages.

import { element, emoji, mrkdwn } from "./mrkdwn.js";

const POLL_INTERVAL = 400;
const WRITING_FOR = 2500;
const NEAR_END = 60;
const state = {
  rooms: [], users: {}, statuses: {}, bot: { id: "", name: "" },
  room: null, thread: null, opensNext: false, edits: new Map(),
};
const at = (id) => document.getElementById(id);
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

const names = () => ({
  users: state.users,
  rooms: Object.fromEntries(state.rooms.map((room) => [room.id, room.name.replace(/^#/, "")])),
});

function button(label, className, onclick) {
  const made = element("button", className, label);
  made.type = "button";
  made.addEventListener("click", onclick);
  return made;
}

function nameOf(message) {
  return message.username || state.users[message.user] || message.user || state.bot.name;
}

// The picture of a person or an agent: an emoji, or initials on a colour of their own. The page
// loads nothing from foreign hosts, so an address is shown as a sign.
function avatar(message) {
  const { emoji: sign, image_64: address } = message.icons ?? {};
  const name = nameOf(message);
  const sum = [...name].reduce((total, one) => (total * 31 + one.codePointAt(0)) % 997, 7);
  const text = sign ? emoji(sign) ?? sign : address ? "🖼" : [...name].slice(0, 2).join("");
  const box = element("span", `avatar hue-${sum % 6}${sign || address ? " picture" : ""}`, text);
  box.title = sign || address || name;
  box.setAttribute("aria-hidden", "true");
  return box;
}

// Whether a message was edited a moment ago: the bot is still writing it.
function isWriting(message) {
  const edited = message.edited?.ts;
  const known = state.edits.get(message.ts);
  if (edited && known?.edited !== edited) {
    state.edits.set(message.ts, { edited, at: Date.now() });
  }
  const last = state.edits.get(message.ts);
  return Boolean(last) && Date.now() - last.at < WRITING_FOR;
}

function headOf(message) {
  const when = new Date(Number(message.ts) * 1000);
  const time = element("time", "when", clock.format(when));
  time.title = when.toLocaleString();
  const badge = message.bot_id ? element("span", "badge", "APP") : "";
  return element("div", "head", element("span", "who", nameOf(message)), badge, time);
}

function reactionsOf(message) {
  const signs = (message.reactions ?? []).map((name) => {
    const sign = element("span", "reaction", `${emoji(name) ?? `:${name}:`} 1`);
    sign.title = `:${name}:`;
    return sign;
  });
  return signs.length ? element("div", "reactions", ...signs) : "";
}

function filesOf(message) {
  return (message.files ?? []).map((file) => element("div", "file", "📎 ",
    element("strong", "", file.name), ` ${Math.ceil((file.size ?? 0) / 1000)} kB`));
}

// Blocks of Slack's Block Kit: texts, lines and buttons. The app hears which button was pressed.
function blockOf(block, message) {
  const text = (one) => mrkdwn(one?.text ?? "", names());
  switch (block.type) {
    case "section":
      return element("div", "block", text(block.text),
        ...(block.accessory ? [control(block.accessory, message)] : []));
    case "header":
      return element("div", "block header", block.text?.text ?? "");
    case "context":
      return element("div", "block context", ...block.elements.map(text));
    case "divider":
      return element("hr");
    case "actions":
      return element("div", "block actions", ...block.elements.map((one) => control(one, message)));
  }
  return "";
}

function control(one, message) {
  if (one.type !== "button") {
    return "";
  }
  const label = one.text?.text ?? one.action_id;
  return button(label, `press ${one.style ?? ""}`.trim(), () => press(one, message));
}

function contentOf(message) {
  const writing = isWriting(message);
  const blocks = message.blocks?.length
    ? element("div", "blocks", ...message.blocks.map((block) => blockOf(block, message)))
    : mrkdwn(message.text, names());
  const mark = message.edited && !writing ? element("span", "edited", "(edited)") : "";
  const box = element("div", `content ${writing ? "writing" : ""}`.trim(), blocks, mark);
  return box;
}

// A line. The first message of a thread says how many answers it has, and opens them.
function item(message, isReply, count) {
  const kind = [isReply ? "reply" : "root", message.bot_id ? "bot" : ""].join(" ").trim();
  const body = element("div", "body", headOf(message), contentOf(message), ...filesOf(message),
    reactionsOf(message));
  if (count !== undefined) {
    const label = count ? `${count} ${count === 1 ? "reply" : "replies"}` : "reply in thread";
    body.append(button(label, count ? "answer has-replies" : "answer", () => openThread(message)));
  }
  return element("li", kind, avatar(message), body);
}

function repliesTo(room, root) {
  return room.messages.filter((message) => message.thread_ts === root);
}

// The room shows the first message of each thread.
function linesOf(room) {
  return room.messages.filter((message) => !message.thread_ts).map((message) => ({
    key: message.ts, message, isReply: false, count: repliesTo(room, message.ts).length,
  }));
}

// The thread shows it again, its answers, and at the end what the bot does now.
function linesOfThread(room) {
  const root = room.messages.find((message) => message.ts === state.thread);
  const status = state.statuses[state.thread];
  return root ? [
    { key: root.ts, message: root, isReply: false },
    ...repliesTo(room, root.ts).map((message) => ({ key: message.ts, message, isReply: true })),
    ...(status ? [{ key: "status", status }] : []),
  ] : [];
}

function build({ message, isReply, status, count }) {
  return status
    ? element("li", "reply status", element("span", "dots", "•••"),
      `${state.bot.name} ${status}`)
    : item(message, isReply, count);
}

// Replace only lines that changed: selection, focus and place stay.
function showLines(list, lines) {
  list.shown ??= new Map();
  const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END;
  const keys = new Set(lines.map(({ key }) => key));
  for (const [key, { node }] of list.shown) {
    if (!keys.has(key)) {
      node.remove();
      list.shown.delete(key);
    }
  }
  let next = list.firstElementChild;
  for (const one of lines) {
    const look = JSON.stringify([one, one.message && isWriting(one.message)]);
    const known = list.shown.get(one.key);
    const node = known?.look === look ? known.node : build(one);
    if (known && known.node !== node) {
      next = next === known.node ? node : next;
      known.node.replaceWith(node);
    }
    list.shown.set(one.key, { look, node });
    if (node === next) {
      next = node.nextElementSibling;
    } else {
      list.insertBefore(node, next);
    }
  }
  if (isAtEnd) {
    list.scrollTop = list.scrollHeight;
  }
}

function roomButton(one, room) {
  const label = one.direct ? `✉ ${state.bot.name}` : one.name;
  const made = button(label, "", () => choose(one.id));
  made.setAttribute("aria-current", String(one.id === room.id));
  return element("li", "", made);
}

function clear(list) {
  list.shown?.clear();
  list.replaceChildren();
}

function openThread({ ts }) {
  state.thread = ts;
  clear(at("replies"));
  at("thread").hidden = false;
  show(false);
  at("reply").focus();
}

function closeThread() {
  state.thread = null;
  at("thread").hidden = true;
  at("text").focus();
}

function choose(id) {
  state.room = id;
  clear(at("messages"));
  closeThread();
  show(true);
}

function show(isFresh) {
  const room = state.rooms.find((one) => one.id === state.room) || state.rooms[0];
  if (!room) {
    return;
  }
  state.room = room.id;
  const look = JSON.stringify([state.room, state.rooms.map(({ id, name }) => [id, name])]);
  if (look !== at("rooms").dataset.look) {
    at("rooms").dataset.look = look;
    at("rooms").replaceChildren(...state.rooms.map((one) => roomButton(one, room)));
  }
  at("title").textContent = room.direct ? `Direct messages with ${state.bot.name}` : room.name;
  at("hint").textContent = room.direct
    ? "The bot gets every message you write here."
    : `Mention @${state.bot.name} and it answers in a thread.`;
  const lines = linesOf(room);
  showLines(at("messages"), lines);
  at("none").hidden = lines.length > 0;
  showLines(at("replies"), linesOfThread(room));
  if (isFresh && !room.direct && !at("text").value) {
    at("text").value = `@${state.bot.name} `;
  }
}

let isFirst = true;
// Resolved once the rooms are known: until then, a message has no place to go.
let markReady;
const ready = new Promise((resolve) => {
  markReady = resolve;
});

async function poll() {
  try {
    const answer = await fetch("/chat/rooms");
    Object.assign(state, await answer.json());
    at("problem").textContent = "";
    show(isFirst);
    openNewThread();
    isFirst = false;
    markReady();
  } catch {
    at("problem").textContent = "The local Slack does not answer; is it still running?";
  }
  setTimeout(poll, POLL_INTERVAL);
}

async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  at("problem").textContent = answer.ok ? "" : await answer.text();
  return answer.ok;
}

function press(pressed, message) {
  return post("/chat/press", { channel: state.room, ts: message.ts, action: pressed });
}

// Say something in the room or, with `thread`, in a thread. Returns whether it was taken.
async function say(text, thread) {
  await ready;
  const room = state.rooms.find((one) => one.id === state.room);
  return Boolean(text && room)
    && post("/chat/say", { text, channel: room.id, thread_ts: thread });
}

async function send(event) {
  event.preventDefault();
  if (await say(at("text").value.trim(), null)) {
    const { direct } = state.rooms.find((one) => one.id === state.room);
    at("text").value = direct ? "" : `@${state.bot.name} `;
    at("messages").scrollTop = at("messages").scrollHeight;
    state.opensNext = !direct;
  }
}

async function answer(event) {
  event.preventDefault();
  if (await say(at("reply").value.trim(), state.thread)) {
    at("reply").value = "";
    at("replies").scrollTop = at("replies").scrollHeight;
  }
}

// The thread of a message that was just sent opens when its first answer comes.
function openNewThread() {
  const room = state.rooms.find((one) => one.id === state.room);
  const last = room?.messages.filter((message) => !message.thread_ts).at(-1);
  if (state.opensNext && last && repliesTo(room, last.ts).length) {
    state.opensNext = false;
    openThread(last);
    at("text").focus();
  }
}

function sendByEnter(field) {
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      field.form.requestSubmit();
    }
  });
}

at("composer").addEventListener("submit", send);
at("answering").addEventListener("submit", answer);
at("leave").addEventListener("click", closeThread);
sendByEnter(at("text"));
sendByEnter(at("reply"));
poll();
