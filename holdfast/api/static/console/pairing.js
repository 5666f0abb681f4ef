// Strangers on channels who wait for approval, and people who were approved.

import { ask, askAll } from "../ask.js";
import { element } from "../dom.js";
import { moment } from "./format.js";
import { confirmAction, toast } from "./forms.js";
import { action, badge, card, empty, updateRows, table, tableRow, scrollBox } from "./parts.js";

const REQUESTS = [
  { name: "Person" }, { name: "Channel" }, { name: "Code" }, { name: "Asked" },
  { name: "Expires" }, { name: "Actions", hidden: true, kind: "actions" },
];
const PEOPLE = [
  { name: "Person" }, { name: "Channel" }, { name: "Approved" }, { name: "By" },
  { name: "Actions", hidden: true, kind: "actions" },
];

function person({ sender, senderId }) {
  return [element("strong", { dir: "auto" }, sender || senderId), " ",
    sender ? element("span", { class: "soft" }, senderId) : ""];
}

function requestRow(page, refresher) {
  return (request) => tableRow(REQUESTS, [
    person(request),
    badge(request.channel),
    element("code", {}, request.code),
    moment(request.requestedAt),
    moment(request.expiresAt),
    [
      action(page.session, {
        label: "Approve", name: request.code, tone: "primary", onclick: async () => {
          await ask("/api/pairing/approve", { method: "POST", body: { code: request.code } });
          toast(`${request.sender || request.senderId} may talk to agents now`);
          await refresher().now();
        },
      }),
      action(page.session, {
        label: "Refuse", name: request.code, onclick: () => revoke(request, "Refuse", refresher()),
      }),
    ],
  ]);
}

async function revoke({ channel, senderId, sender }, verb, refresher) {
  const title = `${verb} ${sender || senderId}?`;
  const text = "Their next message is a stranger's again.";
  await confirmAction({ title, text, confirm: verb, tone: "danger" },
    () => ask("/api/pairing/revoke", { method: "POST", body: { channel, senderId } }));
  await refresher.now();
}

function personRow(page, refresher) {
  return (one) => tableRow(PEOPLE, [
    person(one), badge(one.channel), moment(one.approvedAt), one.approvedBy ?? "–",
    action(page.session, {
      label: "Revoke", name: one.senderId, onclick: () => revoke(one, "Revoke", refresher()),
    }),
  ]);
}

export async function openPairing(page, body) {
  const asked = table("People who wait for approval", REQUESTS);
  const known = table("Approved people", PEOPLE);
  const [requests, people] = [element("div", { id: "requests" }), element("div", { id: "people" })];
  body.replaceChildren(
    card("Waiting for approval", [requests], { class: "flush" }),
    card("Approved people", [people], { class: "flush" }),
  );
  const refresher = page.follow({ types: [], every: 5000, work: async () => {
    const [open, approved] = await Promise.all([
      askAll("/api/pairing"), askAll("/api/pairing/approved"),
    ]);
    updateRows(asked.body, open, (one) => one.code, requestRow(page, () => refresher));
    updateRows(known.body, approved, (one) => `${one.channel} ${one.senderId}`,
      personRow(page, () => refresher));
    requests.replaceChildren(open.length ? scrollBox(asked.node) : empty("Nobody waits",
      "Strangers who write on a channel with pairing appear here with the code they were told.",
      { icon: "check" }));
    people.replaceChildren(approved.length ? scrollBox(known.node) : empty("Nobody is approved yet",
      "Members of a workspace, such as Slack's, need no approval.", { icon: "team" }));
  } });
  await refresher.first();
}
