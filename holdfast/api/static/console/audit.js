// The audit log: who did what to what, newest first, with filters in the address.

import { askPage } from "../ask.js";
import { element } from "../dom.js";
import { moment } from "./format.js";
import { EndlessList } from "./endless.js";
import { filterBar } from "./filters.js";
import { badge, card, empty, table, tableRow, scrollBox } from "./parts.js";

const COLUMNS = [{ name: "Time" }, { name: "Actor" }, { name: "Action" }, { name: "Subject" },
  { name: "Details" }];
const PAGE = 50;
const FILTERS = [
  { name: "actor", label: "Actor", placeholder: "session:ada" },
  { name: "action", label: "Action", placeholder: "retried" },
  { name: "subject", label: "Subject", placeholder: "event:7" },
];

// A name of the log as words: `token_created` reads "token created".
function spoken(name) {
  return name.replaceAll("_", " ");
}

// Leave out the id of a row: the subject names the thing already.
function details(values) {
  const text = Object.entries(values).filter(([key]) => key !== "id").map(([key, value]) => (
    `${spoken(key)}: ${typeof value === "string" ? value : JSON.stringify(value)}`)).join(" · ");
  return element("span", { class: "soft small" }, text || "–");
}

// A subject is a kind and a name, such as `token:ci`.
function subjectOf(subject) {
  const [kind, ...name] = subject.split(":");
  return name.length ? [
    element("span", { class: "soft" }, `${spoken(kind)} `),
    element("strong", {}, name.join(":")),
  ] : element("strong", {}, subject);
}

function auditRow(act) {
  return tableRow(COLUMNS, [
    moment(act.at), act.actor, badge(spoken(act.action)), subjectOf(act.subject),
    details(act.details),
  ]);
}

function addressOf(page, before) {
  const query = new URLSearchParams({ limit: PAGE });
  for (const { name } of FILTERS) {
    const value = page.query.get(name);
    if (value) {
      query.set(name, name === "action" ? value.replaceAll(" ", "_") : value);
    }
  }
  if (before) {
    query.set("before_id", before);
  }
  return `/api/audit?${query}`;
}

export async function openAudit(page, body) {
  const { node, body: rows } = table("Audit log", COLUMNS);
  rows.id = "audit";
  const list = new EndlessList({
    page, rows, shown: scrollBox(node), build: auditRow, key: (act) => act.id,
    load: (before) => askPage(addressOf(page, before)),
    hint: () => empty("Nothing to show", "No act matches these filters.", { icon: "messages" }),
  });
  const bar = filterBar(page, FILTERS, () => list.restart());
  body.replaceChildren(bar, card("Acts, newest first", [list.node], { class: "flush" }));
  await list.restart();
}
