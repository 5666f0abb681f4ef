// Menus, dialogs and toasts. Focus goes in with them and returns when they close.

import { button, element } from "./dom.js";
import { icon } from "./icons.js";

const TOAST_FOR = 6000;
const MARGIN = 8;

let closeOpenMenu = null;

// Open a menu below a button. Items: {label, icon, run, href, download, kind}, or null for a line.
export function openMenu(anchor, items, label = "Actions") {
  const wasOpenHere = closeOpenMenu?.anchor === anchor;
  closeOpenMenu?.();
  if (wasOpenHere) {
    return;
  }
  const menu = element("div", { class: "menu", role: "menu", "aria-label": label });
  const close = (isReturning = true) => {
    menu.remove();
    anchor.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", onOutside, true);
    closeOpenMenu = null;
    if (isReturning) {
      anchor.focus();
    }
  };
  const onOutside = (event) => {
    if (!menu.contains(event.target) && !anchor.contains(event.target)) {
      close(false);
    }
  };
  close.anchor = anchor;
  closeOpenMenu = close;
  menu.append(...items.map((item) => menuItem(item, close)));
  menu.addEventListener("keydown", (event) => onMenuKey(event, menu, close));
  anchor.setAttribute("aria-expanded", "true");
  (anchor.closest("dialog") ?? document.body).append(menu);
  position(menu, anchor);
  document.addEventListener("pointerdown", onOutside, true);
  menu.querySelector("[role=menuitem]")?.focus();
}

function menuItem(item, close) {
  if (item === null) {
    return element("div", { role: "separator" });
  }
  const values = { role: "menuitem", tabindex: "-1", class: item.kind ?? "" };
  const children = [item.icon && icon(item.icon), element("span", {}, item.label)];
  const onclick = () => {
    close();
    item.run?.();
  };
  return item.href
    ? element("a", { ...values, href: item.href, download: item.download, onclick }, ...children)
    : element("button", { ...values, type: "button", onclick }, ...children);
}

function onMenuKey(event, menu, close) {
  const items = [...menu.querySelectorAll("[role=menuitem]")];
  const at = items.indexOf(document.activeElement);
  const next = {
    ArrowDown: (at + 1) % items.length,
    ArrowUp: (at - 1 + items.length) % items.length,
    Home: 0,
    End: items.length - 1,
  }[event.key];
  if (next !== undefined) {
    items[next].focus();
  } else if (event.key === "Escape" || event.key === "Tab") {
    close();
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}

function position(menu, anchor) {
  const from = anchor.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const isBelow = from.bottom + height + MARGIN < innerHeight;
  const top = isBelow ? from.bottom + 4 : Math.max(MARGIN, from.top - height - 4);
  const left = Math.min(Math.max(MARGIN, from.right - width), innerWidth - width - MARGIN);
  menu.style.top = `${top}px`;
  menu.style.left = `${left}px`;
}

// Open a modal dialog. The browser keeps focus inside, and returns it after Escape or `close`.
export function openDialog(title, build, values = {}) {
  const dialog = element("dialog", { "aria-label": title, ...values });
  return new Promise((resolve) => {
    // Do not wait for the `close` event: focus returns before it, and a quick second press would be
    // lost.
    const close = (value = "") => {
      dialog.close(value);
      dialog.remove();
      resolve(value);
    };
    dialog.append(element("div", { class: "dialog" }, element("h2", {}, title), build(close)));
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) {
        close();
      }
    });
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      close();
    });
    dialog.addEventListener("close", () => close(dialog.returnValue));
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Ask before something that cannot be undone. Returns whether the person agreed.
export async function confirmAction({ title, text, action, kind = "danger" }) {
  const answer = await openDialog(title, (close) => element("div", { class: "dialog-body" },
    element("p", { class: "soft" }, text),
    element("div", { class: "actions" },
      button("Cancel", () => close(), { autofocus: true }),
      button(action, () => close("yes"), { class: `button ${kind}` }))));
  return answer === "yes";
}

// Ask for one line of text. Returns undefined if the person cancelled.
export async function askForText({ title, label, value = "", action = "Save", maxlength = 200 }) {
  const input = element("input", { class: "input", value, maxlength, required: true, dir: "auto" });
  const answer = await openDialog(title, (close) => element("form", {
    class: "dialog-body",
    onsubmit: (event) => {
      event.preventDefault();
      close("yes");
    },
  },
  element("label", { class: "field" }, label, input),
  element("div", { class: "actions" },
    button("Cancel", () => close()),
    element("button", { class: "button primary" }, action))));
  return answer === "yes" ? input.value.trim() : undefined;
}

function toasts() {
  const known = document.querySelector(".toasts");
  if (known) {
    return known;
  }
  const made = element("div", { class: "toasts", role: "status", "aria-live": "polite" });
  document.body.append(made);
  return made;
}

// Show a short message, with one action such as Undo. Returns a function that removes it.
export function toast(text, { action, run, kind = "", shownFor = TOAST_FOR } = {}) {
  const note = element("div", { class: `toast ${kind}`.trim() }, element("span", {}, text));
  const remove = () => note.remove();
  const timer = setTimeout(remove, shownFor);
  if (action) {
    note.append(button(action, () => {
      clearTimeout(timer);
      remove();
      run();
    }, { class: "button ghost small" }));
  }
  toasts().append(note);
  return remove;
}

// Copy a text, and say so with `done`. Returns whether it worked: browsers offer the clipboard on
// HTTPS and on the same machine alone.
export async function copyText(text, done = "") {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    toast("The browser does not let this page copy.", { kind: "bad" });
    return false;
  }
  if (done) {
    toast(done);
  }
  return true;
}
