// Access: tokens, sessions, pairing, schedules and the audit log. Each part says which role it
// needs.

import { ask } from "../ask.js";
import { element } from "../dom.js";
import { openAudit } from "./audit.js";
import { openPairing } from "./pairing.js";
import { allows, deniedBox, skeleton, tabLinks } from "./parts.js";
import { openSchedules } from "./schedules.js";
import { openSessions, openTokens } from "./tokens.js";

const TABS = {
  tokens: { name: "Tokens", needed: "admin", what: "Only admins manage tokens", open: openTokens },
  sessions: {
    name: "Sessions", needed: "admin", what: "Only admins see sessions", open: openSessions,
  },
  pairing: {
    name: "Pairing", needed: "admin", what: "Only admins approve people", open: openPairing,
  },
  schedules: { name: "Schedules", needed: "read", open: openSchedules },
  audit: { name: "Audit log", needed: "admin", what: "Only admins read the audit log",
    open: openAudit },
};

export async function open(page) {
  const asked = page.query.get("tab");
  const current = TABS[asked] ? asked : allows(page.session, "admin") ? "tokens" : "schedules";
  const waiting = element("span", { class: "tab-count" });
  const links = Object.entries(TABS).map(([id, { name }]) => (
    { id, name, href: `/console/access?tab=${id}` }));
  const body = element("div", { class: "stack" }, skeleton());
  page.head("Access", { lead: "People and programs that may use this server" });
  page.body.replaceChildren(tabLinks("Parts of access", links, current), body);
  showWaiting(page, waiting).catch(() => {});
  const tab = TABS[current];
  if (!allows(page.session, tab.needed)) {
    body.replaceChildren(deniedBox(tab.what, page.session, tab.needed));
    return;
  }
  await tab.open(page, body);
}

// Show the number of people who wait beside the name of the tab, whichever tab is open.
async function showWaiting(page, node) {
  if (allows(page.session, "admin")) {
    const requests = await ask("/api/pairing");
    const link = page.body.querySelector('a[href$="tab=pairing"]');
    node.textContent = requests.length || "";
    if (requests.length) {
      node.classList.add("badge", "wait");
      link?.append(node);
    }
  }
}
