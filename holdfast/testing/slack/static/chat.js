// The chat page of the local Slack: polls the rooms, shows one, and sends messages.
"use strict";

const POLL_INTERVAL = 400;
const SIGNS = { eyes: "👀" };
const EMOJI = { ":robot_face:": "🤖", ":memo:": "📝", ":hammer_and_wrench:": "🛠️" };
const state = {
  rooms: [], users: {}, bot: { id: "", name: "" }, room: null, thread: null, shown: "",
};
const at = (id) => document.getElementById(id);

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function unescapeText(text) {
  return text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

// Slack's mrkdwn, as far as the bot writes it. Everything becomes text nodes, never markup.
const PIECES = new RegExp([
  /```\n?([\s\S]*?)```/, /`([^`\n]+)`/, /<@([A-Z0-9]+)(?:\|[^>]*)?>/,
  /<(https?:[^>|]+)(?:\|([^>]*))?>/, /\*([^*\n]+)\*/, /_([^_\n]+)_/,
].map((piece) => piece.source).join("|"), "g");

function renderText(text) {
  const box = element("div", "text");
  box.dir = "auto";
  let from = 0;
  for (const found of text.matchAll(PIECES)) {
    box.append(unescapeText(text.slice(from, found.index)));
    const [all, block, code, user, link, label, bold, italic] = found;
    if (block !== undefined) box.append(element("pre", "", unescapeText(block)));
    else if (code !== undefined) box.append(element("code", "", unescapeText(code)));
    else if (user) box.append(element("span", "mention", "@" + (state.users[user] || user)));
    else if (link) {
      const anchor = element("a", "", unescapeText(label || link));
      anchor.href = unescapeText(link);
      anchor.rel = "noreferrer";
      box.append(anchor);
    } else box.append(element(bold ? "strong" : "em", "", unescapeText(bold || italic)));
    from = found.index + all.length;
  }
  box.append(unescapeText(text.slice(from)));
  return box;
}

// The page loads nothing from foreign hosts, so a picture is shown as a sign with its address.
function icon(icons) {
  const shown = element("span", "icon", icons.emoji ? EMOJI[icons.emoji] || icons.emoji : "🖼");
  shown.title = icons.emoji || icons.image_64;
  return shown;
}

function item(message) {
  const bot = Boolean(message.bot_id);
  const line = element("li", [message.thread_ts ? "reply" : "", bot ? "bot" : ""].join(" ").trim());
  if (message.icons) line.append(icon(message.icons));
  const name = message.username || state.users[message.user] || message.user;
  line.append(element("span", "who", name));
  line.append(element("time", "when", new Date(Number(message.ts) * 1000).toLocaleTimeString()));
  line.append(renderText(message.text));
  for (const file of message.files || []) line.append(element("div", "", "📎 " + file.name));
  if (message.reactions?.length) {
    const signs = message.reactions.map((sign) => `${SIGNS[sign] || ""} ${sign}`.trim());
    line.append(element("span", "reactions", signs.join(", ")));
  }
  if (!message.thread_ts) {
    const answer = element("button", "answer", "reply in thread");
    answer.type = "button";
    answer.addEventListener("click", () => reply(message.ts));
    line.append(answer);
  }
  return line;
}

// Put replies below the message they answer.
function byThread(messages) {
  const roots = messages.filter((message) => !message.thread_ts);
  const replies = (root) => messages.filter((message) => message.thread_ts === root.ts);
  return roots.flatMap((root) => [root, ...replies(root)]);
}

function reply(ts) {
  state.thread = ts;
  at("replying").hidden = ts === null;
  at("text").focus();
}

function choose(id) {
  state.room = id;
  reply(null);
  show(true);
}

function show(fresh) {
  const room = state.rooms.find((one) => one.id === state.room) || state.rooms[0];
  if (!room) return;
  state.room = room.id;
  const look = JSON.stringify([state.room, room.messages]);
  if (!fresh && look === state.shown) return;
  state.shown = look;
  at("rooms").replaceChildren(...state.rooms.map((one) => {
    const button = element("button", "", one.direct ? "✉ " + state.bot.name : one.name);
    button.type = "button";
    button.setAttribute("aria-current", String(one.id === room.id));
    button.addEventListener("click", () => choose(one.id));
    const line = element("li");
    line.append(button);
    return line;
  }));
  at("title").textContent = room.direct ? "Direct messages with " + state.bot.name : room.name;
  at("hint").textContent = room.direct
    ? "The bot gets every message you write here."
    : "Mention @" + state.bot.name + " and it answers in a thread.";
  at("messages").replaceChildren(...byThread(room.messages).map(item));
  at("messages").scrollTop = at("messages").scrollHeight;
  if (fresh && !room.direct && !at("text").value) at("text").value = "@" + state.bot.name + " ";
}

async function poll() {
  try {
    const answer = await fetch("/chat/rooms");
    Object.assign(state, await answer.json());
    at("problem").textContent = "";
    show(state.shown === "");
  } catch {
    at("problem").textContent = "The local Slack does not answer; is it still running?";
  }
  setTimeout(poll, POLL_INTERVAL);
}

async function send(event) {
  event.preventDefault();
  const room = state.rooms.find((one) => one.id === state.room);
  const text = at("text").value.trim();
  if (!text || !room) return;
  const answer = await fetch("/chat/say", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ text, channel: room.id, thread_ts: state.thread }),
  });
  if (!answer.ok) {
    at("problem").textContent = await answer.text();
    return;
  }
  at("text").value = room.direct ? "" : "@" + state.bot.name + " ";
}

at("composer").addEventListener("submit", send);
at("leave").addEventListener("click", () => reply(null));
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) at("composer").requestSubmit();
  if (event.key === "Enter" && !event.shiftKey) event.preventDefault();
});
poll();
