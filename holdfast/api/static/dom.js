// Builds elements. Text becomes text nodes; only `fromServer` inserts markup.

import { icon } from "./icons.js";

export const byId = (id) => document.getElementById(id);

export function element(name, values = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(values)) {
    if (key.startsWith("on")) {
      node.addEventListener(key.slice(2), value);
    } else if (value !== undefined && value !== null && value !== false) {
      node.setAttribute(key, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter(isShown));
  return node;
}

function isShown(child) {
  return child !== undefined && child !== null && child !== false && child !== "";
}

export function hidden(text) {
  return element("span", { class: "hidden-text" }, text);
}

export function button(label, onclick, values = {}) {
  const { icon: name, ...further } = values;
  const children = name ? [icon(name), element("span", {}, label)] : [label];
  return element("button", { type: "button", class: "button", onclick, ...further }, ...children);
}

// A button that shows an icon alone. Its name is in a hidden text and in the tooltip.
export function iconButton(name, label, onclick, values = {}) {
  const common = { type: "button", class: "icon-button", title: label, onclick };
  return element("button", { ...common, ...values }, icon(name), hidden(label));
}

// The initials of a name on one of six colours. The colour is that of `id`, so that an agent keeps
// its own wherever it is shown, by name or by id.
export function avatar(name, id = name) {
  // Of an e-mail address, the part before the host.
  const shown = (name || "?").split("@")[0] || name;
  const words = shown.split(/[\s_.-]+/).filter(Boolean);
  const initials = words.length > 1
    ? [...words[0]][0] + [...words[1]][0]
    : [...shown].slice(0, 2).join("");
  const sum = [...(id || "?")].reduce(
    (total, sign) => (total * 31 + sign.codePointAt(0)) % 9973, 40);
  return element("span", { class: `avatar hue-${(sum % 6) + 1}`, "aria-hidden": "true" }, initials);
}

// The sign of somebody without a name.
export function nobody() {
  return element("span", { class: "avatar nobody", "aria-hidden": "true" }, icon("person"));
}

// The line that opens and closes a <details>.
export function fold(...content) {
  return element("summary", { class: "fold-line" }, icon("chevronRight"), ...content);
}

// Insert HTML that the server has rendered and sanitised: the `html` keys of the API, nothing else.
export function fromServer(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  for (const link of template.content.querySelectorAll("a[href]")) {
    link.rel = "noopener noreferrer nofollow";
    link.target = "_blank";
  }
  return template.content;
}

// Turn fenced and quoted code into elements; leave the rest as text.
export function codeElements(text) {
  return text.split(/\n?(```[\s\S]*?(?:```|$))\n?/).flatMap((part) => {
    if (part.startsWith("```")) {
      const code = part.slice(3).replace(/```$/, "").replace(/^[\w+-]*\n/, "");
      return [element("pre", {}, element("code", {}, code))];
    }
    return part.split(/(`[^`\n]+`)/).map((piece) => {
      const isCode = piece.length > 2 && piece.startsWith("`") && piece.endsWith("`");
      return isCode ? element("code", {}, piece.slice(1, -1)) : piece;
    });
  });
}

// The box of a state of a page: nothing there, failed, or not allowed.
export function stateBox({ icon: name, title, text, action, kind = "", level = "h2" }) {
  const children = [name && icon(name), element(level, {}, title), text && element("p", {}, text)];
  return element("div", { class: `state-box ${kind}`.trim() }, ...children, action);
}

export function skeletons(count, className = "") {
  const lines = Array.from({ length: count }, () => (
    element("span", { class: `skeleton ${className}`.trim() })
  ));
  return element("div", { class: "skeletons", "aria-hidden": "true" }, ...lines);
}
