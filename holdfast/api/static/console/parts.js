// Pieces that the pages of the console share. Text is inserted as text, never as markup.

import { element, hidden, stateBox } from "../dom.js";
import { toast } from "../overlay.js";

const RANK = { read: 0, send: 1, admin: 2 };
let serial = 0;

export function unique(prefix) {
  serial += 1;
  return `${prefix}-${serial}`;
}

export function allows(session, needed) {
  return RANK[session.role] >= RANK[needed];
}

export function reasonAgainst(session, needed) {
  return `Needs the role ${needed}; ${session.name} has the role ${session.role}.`;
}

export function badge(label, tone = "plain", values = {}) {
  return element("span", { class: `badge ${tone}`, ...values }, label);
}

const STATES = {
  pending: ["waiting", "info"],
  waiting: ["waiting for a signal", "info"],
  queued: ["queued", "info"],
  delayed: ["delayed", "info"],
  retrying: ["retrying", "wait"],
  processing: ["processing", "accent"],
  completed: ["completed", "good"],
  dead: ["dead", "bad"],
  expired: ["expired", "bad"],
  cancelled: ["cancelled", "wait"],
  discarded: ["discarded", "plain"],
  paused: ["paused", "wait"],
};

export function stateBadge(state) {
  const [label, tone] = STATES[state] ?? [state, "plain"];
  return badge(label, tone, { "data-state": state });
}

// Do something that may fail, such as a request. A failure is shown, and the page goes on.
export async function attempt(work, node) {
  node?.setAttribute("aria-busy", "true");
  try {
    return await work();
  } catch (error) {
    toast(error.message, { kind: "bad" });
    return undefined;
  } finally {
    node?.removeAttribute("aria-busy");
  }
}

// A button for an action that needs a role. Without it the button stays in the order of focus, says
// why it does nothing, and does nothing.
export function action(session, { label, needed = "admin", onclick, name, tone = "", ...more }) {
  const values = { type: "button", class: `button small ${tone}`.trim(), ...more };
  if (name !== undefined) {
    values["aria-label"] = `${label} ${name}`;
  }
  if (allows(session, needed)) {
    const node = element("button", values, label);
    node.addEventListener("click", () => {
      if (!node.hasAttribute("aria-busy")) {
        attempt(onclick, node);
      }
    });
    return node;
  }
  const reason = reasonAgainst(session, needed);
  const id = unique("reason");
  const node = element("button", {
    ...values, "aria-disabled": "true", title: reason, "aria-describedby": id,
    onclick: () => toast(reason),
  }, label);
  return element("span", { class: "action" }, node,
    element("span", { id, class: "hidden-text" }, reason));
}

// One line for the whole page: which role would be needed, and for what.
export function roleNote(session, needed, what) {
  return allows(session, needed) ? "" : element("p", { class: "role-note", role: "note" },
    `${what} ${reasonAgainst(session, needed)}`);
}

export function card(title, body = [], { actions = [], level = 2, ...values } = {}) {
  const id = unique("card");
  return element("section",
    { "aria-labelledby": id, ...values, class: `card ${values.class ?? ""}` },
    element("header", { class: "card-head" },
      element(`h${level}`, { id }, title), element("div", { class: "card-actions" }, ...actions)),
    ...body);
}

export function empty(title, text, { icon = "check", more } = {}) {
  return stateBox({ icon, title, text, action: more });
}

export function skeleton(rows = 8) {
  return element("div", { class: "loading", role: "status" }, hidden("Loading"),
    ...Array.from({ length: rows }, () => element("span", { class: "skeleton" })));
}

export function deniedBox(what, session, needed, reason = reasonAgainst(session, needed)) {
  const text = `${reason} An admin can print a link with more rights: holdfast login`;
  return stateBox({ icon: "key", title: what, text });
}

export function failure(error, onRetry) {
  const box = stateBox({
    icon: "warning", title: "This could not be loaded", text: error.message, kind: "bad",
    action: onRetry && element("button", { type: "button", class: "button", onclick: onRetry },
      "Try again"),
  });
  box.setAttribute("role", "alert");
  return box;
}

// Show rows in order, and build only those anew whose content changed: focus, selection and scroll
// position stay. `key` names a row; `build` makes its node.
export function updateRows(parent, rows, key, build) {
  const before = parent.shownRows ?? new Map();
  const now = new Map();
  let next = parent.firstChild;
  for (const row of rows) {
    const id = String(key(row));
    const content = JSON.stringify(row);
    const known = before.get(id);
    const node = known?.content === content ? known.node : build(row);
    before.delete(id);
    now.set(id, { node, content });
    if (known && known.node !== node) {
      next = next === known.node ? known.node.nextSibling : next;
      keepFocus(known.node, node);
    }
    if (node === next) {
      next = next.nextSibling;
    } else {
      parent.insertBefore(node, next);
    }
  }
  for (const { node } of before.values()) {
    node.remove();
  }
  parent.shownRows = now;
}

// Replace a node. If it had the focus, the same control of the new one has it then.
function keepFocus(old, node) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const controls = focused ? [...old.querySelectorAll("a, button, input, summary")] : [];
  const opened = [...old.querySelectorAll("details")].map((one) => one.open);
  old.replaceWith(node);
  [...node.querySelectorAll("details")].forEach((one, index) => {
    one.open = opened[index] ?? one.open;
  });
  if (focused) {
    const at = controls.indexOf(focused);
    ([...node.querySelectorAll("a, button, input, summary")][at] ?? node).focus?.();
  }
}

// A table that becomes a list of cards on a narrow screen. Roles are explicit: without them a
// changed `display` would take them away.
export function table(caption, columns) {
  const cells = columns.map(({ name, kind = "", hidden }) => element(
    "th", { scope: "col", role: "columnheader", class: kind },
    hidden ? element("span", { class: "hidden-text" }, name) : name,
  ));
  const body = element("tbody", { role: "rowgroup" });
  const node = element("table", { class: "table", role: "table" },
    element("caption", { class: "hidden-text" }, caption),
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...cells)), body);
  return { node, body };
}

export function tableRow(columns, cells, values = {}) {
  return element("tr", { role: "row", ...values }, ...cells.map((cell, index) => {
    const { name, kind = "", hidden } = columns[index];
    return element("td", {
      role: "cell", class: kind, ...(hidden ? {} : { "data-label": name }),
    }, ...(Array.isArray(cell) ? cell : [cell]));
  }));
}

// A table that is too wide scrolls by itself; the page never does.
export function scrollBox(node) {
  return element("div", { class: "table-wrap" }, node);
}

// Replace a child only if it is another one, so that focus in it stays.
export function showOnly(parent, node) {
  if (parent.firstChild !== node || parent.childNodes.length !== 1) {
    parent.replaceChildren(node);
  }
}

// Links that look like tabs; which one is open stands in the address.
export function tabLinks(label, tabs, current) {
  return element("nav", { class: "tabs", "aria-label": label },
    ...tabs.map(({ id, name, href, more }) =>
    element("a", {
      href, class: "tab", ...(id === current ? { "aria-current": "page" } : {}),
    }, name, more === undefined || more === "" ? "" : badge(more))));
}

// A control with its label, and a hint that belongs to its description. The label stands beside the
// control, not around it: the choices of a select are not part of its name.
export function withLabel(label, control, { hint, className = "field" } = {}) {
  const id = unique("field");
  control.id = id;
  if (hint) {
    control.setAttribute("aria-describedby", `${id}-hint`);
  }
  return element("div", { class: className }, element("label", { for: id }, label), control,
    hint ? element("span", { id: `${id}-hint`, class: "small soft" }, hint) : "");
}

// Buttons of which one is pressed, such as hour, day and week.
export function segments(label, options, current, onchange) {
  const group = element("div", { class: "segments", role: "group", "aria-label": label });
  group.append(...options.map(([value, name]) => element("button", {
    type: "button", "aria-pressed": String(value === current), onclick: () => {
      for (const node of group.children) {
        node.setAttribute("aria-pressed", String(node.dataset.value === value));
      }
      onchange(value);
    }, "data-value": value,
  }, name)));
  return group;
}

export function definitions(pairs) {
  return element("dl", { class: "facts" }, ...pairs.flatMap(([name, value]) => (
    value === undefined || value === null || value === "" ? []
      : [element("div", {}, element("dt", {}, name), element("dd", { dir: "auto" }, value))])));
}
