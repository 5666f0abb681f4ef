// The access page: tokens, sessions and the audit log, for admins.

import { ask, askPage } from "./ask.js";
import { button, element } from "./view.js";

const byId = (id) => document.getElementById(id);
const AUDIT_PAGE = 20;
const LOGGED_OUT = "This browser is not logged in. Run holdfast login and open the link.";

function notice(message) {
  byId("notice").textContent = message;
  byId("notice").hidden = !message;
}

async function attempt(work) {
  try {
    notice("");
    await work();
  } catch (error) {
    notice(error.status === 401 ? LOGGED_OUT : error.message);
  }
}

function time(millis, otherwise) {
  return millis === null ? otherwise : new Date(millis).toLocaleString();
}

function row(...cells) {
  return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
}

function action(label, name, onclick) {
  return button(label, onclick, { "aria-label": `${label} ${name}` });
}

function bounds(token) {
  const parts = [
    token.channels && `channels ${token.channels.join(", ")}`,
    token.agents && `agents ${token.agents.join(", ")}`,
    token.sender && `sender ${token.sender}`,
  ].filter(Boolean);
  return parts.join("; ") || "nothing";
}

async function showTokens() {
  const tokens = await ask("/api/tokens");
  byId("tokens").replaceChildren(...tokens.map((token) => row(
    token.name,
    token.role,
    bounds(token),
    time(token.lastUsedAt, "never"),
    token.expired ? "expired" : time(token.expiresAt, "never"),
    action("Revoke", token.name, () => attempt(() => revoke(token.name))),
  )));
}

async function showSessions() {
  const sessions = await ask("/api/sessions");
  byId("sessions").replaceChildren(...sessions.map((session) => row(
    session.current ? `${session.name} (this one)` : session.name,
    session.role,
    time(session.createdAt, ""),
    time(session.lastUsedAt, "never"),
    time(session.expiresAt, "never"),
    action("End", session.name, () => attempt(() => endSession(session))),
  )));
}

let next = null;
async function showAudit(isFirst) {
  const before = isFirst || !next ? "" : `&before_id=${next}`;
  const page = await askPage(`/api/audit?limit=${AUDIT_PAGE}${before}`);
  next = page.next;
  byId("more").hidden = !next;
  const rows = page.rows.map((act) => row(time(act.at, ""), act.actor, act.action, act.subject));
  if (isFirst) {
    byId("audit").replaceChildren(...rows);
  } else {
    byId("audit").append(...rows);
  }
}

async function show() {
  await showTokens();
  await showSessions();
  await showAudit(true);
}

async function revoke(name) {
  await ask(`/api/tokens/${encodeURIComponent(name)}`, { method: "DELETE" });
  await show();
}

async function endSession(session) {
  await ask(`/api/sessions/${session.id}`, { method: "DELETE" });
  if (session.current) {
    location.assign("/");
  } else {
    await show();
  }
}

function names(value) {
  const found = value.split(",").map((name) => name.trim()).filter(Boolean);
  return found.length ? found : undefined;
}

async function create(form) {
  const fields = Object.fromEntries(new FormData(form));
  const body = {
    name: fields.name.trim(),
    role: fields.role,
    channels: names(fields.channels),
    agents: names(fields.agents),
    sender: fields.sender.trim() || undefined,
    expires: fields.expires.trim() || undefined,
  };
  const token = await ask("/api/tokens", { method: "POST", body });
  byId("secret-text").textContent = token.token;
  byId("secret").hidden = false;
  form.reset();
  await show();
}

byId("new-token").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => create(event.target));
});
byId("more").addEventListener("click", () => attempt(() => showAudit(false)));

attempt(async () => {
  const session = await ask("/api/session");
  if (session.role !== "admin") {
    notice(`Only admins manage access; this login has the role ${session.role}.`);
    return;
  }
  byId("access").hidden = false;
  await show();
});
