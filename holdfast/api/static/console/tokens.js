// Tokens of people and programs, and sessions of browsers.

import { ask, askAll } from "../ask.js";
import { element } from "../dom.js";
import { copyText } from "../overlay.js";
import { moment } from "./format.js";
import { confirmAction, formDialog, toast } from "./forms.js";
import {
  action, badge, card, empty, updateRows, table, tableRow, scrollBox,
} from "./parts.js";

const TOKENS = [
  { name: "Name" }, { name: "Role" }, { name: "Bound to" }, { name: "Last used" },
  { name: "Expires" }, { name: "Actions", hidden: true, kind: "actions" },
];
const SESSIONS = [
  { name: "Name" }, { name: "Role" }, { name: "Logged in" }, { name: "Last used" },
  { name: "Expires" }, { name: "Actions", hidden: true, kind: "actions" },
];
const ROLE_TONES = { admin: "wait", send: "info", read: "" };

export function roleBadge(role) {
  return badge(role, ROLE_TONES[role] ?? "");
}

export function bounds(token) {
  const parts = [
    token.channels && `channels ${token.channels.join(", ")}`,
    token.agents && `agents ${token.agents.join(", ")}`,
    token.sender && `sender ${token.sender}`,
  ].filter(Boolean);
  return parts.length ? parts.join("; ") : element("span", { class: "soft" }, "nothing");
}

function names(value) {
  const found = value.split(",").map((name) => name.trim()).filter(Boolean);
  return found.length ? found : undefined;
}

const FIELDS = [
  { name: "name", label: "Name", required: true, maxlength: 100, hint: "A person or a program." },
  {
    name: "role", label: "Role", value: "send",
    options: [["read", "read: look"], ["send", "send: talk to agents"],
      ["admin", "admin: everything"]],
  },
  { name: "channels", label: "Channels", placeholder: "all, or names by comma" },
  { name: "agents", label: "Agents", placeholder: "all, or names by comma" },
  { name: "sender", label: "Sender", placeholder: "any" },
  { name: "expires", label: "Expires", placeholder: "never, or 30d" },
];

async function create(fields) {
  const body = {
    name: fields.name.trim(),
    role: fields.role,
    channels: names(fields.channels),
    agents: names(fields.agents),
    sender: fields.sender.trim() || undefined,
    expires: fields.expires.trim() || undefined,
  };
  return ask("/api/tokens", { method: "POST", body });
}

// The secret is shown once, in the page, until the person has taken it.
function showSecret(box, { name, token }) {
  const copy = element("button", {
    type: "button", class: "button small", onclick: () => copyText(token, "Token copied"),
  }, "Copy");
  box.replaceChildren(element("div", { class: "secret", role: "status" },
    element("p", {}, element("strong", {}, `Token of ${name}. `),
      "It is shown only once: copy it now."),
    element("p", { class: "secret-line" }, element("code", { id: "secret-text" }, token), copy)));
}

function tokenRow(page, refresher) {
  return (token) => tableRow(TOKENS, [
    element("strong", {}, token.name),
    roleBadge(token.role),
    bounds(token),
    moment(token.lastUsedAt, "never"),
    token.expired ? badge("expired", "bad") : moment(token.expiresAt, "never"),
    action(page.session, {
      label: "Revoke", name: token.name, onclick: () => revoke(token.name, refresher()),
    }),
  ]);
}

async function revoke(name, refresher) {
  const text = "Programs that use it are refused at once, and sessions opened with it end.";
  await confirmAction({ title: `Revoke ${name}?`, text, confirm: "Revoke token", tone: "danger" },
    () => ask(`/api/tokens/${encodeURIComponent(name)}`, { method: "DELETE" }));
  await refresher.now();
}

export async function openTokens(page, body) {
  const { node, body: rows } = table("Tokens", TOKENS);
  const list = element("div", { id: "tokens" });
  const secret = element("div");
  let refresher;
  const add = action(page.session, {
    label: "New token", tone: "primary", onclick: async () => {
      const made = await formDialog({
        title: "New token", fields: FIELDS, confirm: "Create token", work: create,
      });
      if (made) {
        showSecret(secret, made);
        await refresher.now();
      }
    },
  });
  body.replaceChildren(secret, card("Tokens", [list], { actions: [add], class: "flush" }));
  refresher = page.follow({ types: [], every: 30000, work: async () => {
    const tokens = await askAll("/api/tokens");
    updateRows(rows, tokens, (one) => one.id, tokenRow(page, () => refresher));
    list.replaceChildren(tokens.length ? scrollBox(node) : empty("No tokens yet",
      "Every person and every program should have one of its own, with the least rights it needs.",
      { icon: "key" }));
  } });
  await refresher.first();
}

function sessionRow(page, refresher) {
  return (session) => tableRow(SESSIONS, [
    [element("strong", {}, session.name), " ", session.current ? badge("this one", "accent") : ""],
    roleBadge(session.role),
    moment(session.createdAt),
    moment(session.lastUsedAt, "never"),
    moment(session.expiresAt, "never"),
    action(page.session, {
      label: "End", name: session.name, onclick: () => endSession(session, refresher()),
    }),
  ]);
}

async function endSession(session, refresher) {
  if (session.current) {
    const title = "End your own session?";
    const text = "This browser is logged out. Run holdfast login for a new link.";
    if (await confirmAction({ title, text, confirm: "Log out" }, () => remove(session))) {
      location.assign("/");
    }
    return;
  }
  await remove(session);
  toast(`The session of ${session.name} has ended`);
  await refresher.now();
}

function remove(session) {
  return ask(`/api/sessions/${encodeURIComponent(session.id)}`, { method: "DELETE" });
}

export async function openSessions(page, body) {
  const { node, body: rows } = table("Sessions", SESSIONS);
  body.replaceChildren(card("Sessions of browsers", [scrollBox(node)], { class: "flush" }));
  const refresher = page.follow({ types: [], every: 15000, work: async () => {
    updateRows(rows, await askAll("/api/sessions"), (one) => one.id,
      sessionRow(page, () => refresher));
  } });
  await refresher.first();
}
