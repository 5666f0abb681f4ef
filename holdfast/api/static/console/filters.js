// A bar of filters. Their values live in the address bar, so that a view can be sent to a
// colleague.

import { element } from "../dom.js";
import { withLabel } from "./parts.js";

const TYPING_PAUSE = 250;

function control(page, filter, changed) {
  const values = { class: "input", name: filter.name, placeholder: filter.placeholder };
  const current = page.query.get(filter.name) ?? "";
  if (filter.options) {
    const node = element("select", { ...values, onchange: () => changed(filter.name, node.value) },
      ...filter.options.map(([value, name]) => element("option", { value }, name)));
    if (!filter.options.some(([value]) => value === current)) {
      node.append(element("option", { value: current }, current));
    }
    node.value = current;
    return node;
  }
  let timer;
  const node = element("input", {
    ...values, type: filter.type ?? "search", autocomplete: "off", spellcheck: "false",
    maxlength: 200, list: filter.list, oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => changed(filter.name, node.value.trim()), TYPING_PAUSE);
    },
  });
  node.value = current;
  return node;
}

// `filters` have a name, a label and either options or free text.
export function filterBar(page, filters, onChange) {
  const clear = element("button", { type: "button", class: "button ghost small" }, "Clear filters");
  const names = filters.map((one) => one.name);
  const noteClear = () => {
    clear.hidden = !names.some((name) => page.query.get(name));
  };
  const changed = (name, value) => {
    page.note({ [name]: value });
    noteClear();
    onChange();
  };
  const controls = filters.map((filter) => control(page, filter, changed));
  clear.addEventListener("click", () => {
    page.note(Object.fromEntries(names.map((name) => [name, ""])));
    controls.forEach((node) => { node.value = ""; });
    noteClear();
    controls[0].focus();
    onChange();
  });
  noteClear();
  const toggle = element("button", {
    type: "button", class: "button filters-toggle", "aria-expanded": "false", onclick: () => {
      const isOpen = toggle.form.classList.toggle("open");
      toggle.setAttribute("aria-expanded", String(isOpen));
    },
  }, "Filters");
  toggle.hidden = filters.length < 2;
  return element("form", {
    class: "filters", role: "search", onsubmit: (event) => event.preventDefault(),
  },
  ...filters.map((filter, index) => withLabel(filter.label, controls[index], {
    className: filter.isWide ? "field wide" : "field",
  })), toggle, clear);
}

// Suggestions for a free text, such as names of agents.
export function suggestions(id, names) {
  return element("datalist", { id }, ...names.map((value) => element("option", { value })));
}

