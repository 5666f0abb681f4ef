// Dialogs with a question or a form, and work that can be undone for ten seconds.

import { button, element } from "../dom.js";
import { confirmAction as agreed, openDialog, toast } from "../overlay.js";
import { attempt, withLabel } from "./parts.js";

const UNDO_SECONDS = 10;

// Ask, then do. Returns whether it was done.
export async function confirmAction({ title, text, confirm, tone = "danger" }, work) {
  if (!await agreed({ title, text, action: confirm, kind: tone })) {
    return false;
  }
  await work();
  return true;
}

function control(field) {
  const values = {
    class: "input", name: field.name, required: field.required, maxlength: field.maxlength,
    placeholder: field.placeholder, dir: "auto", autocomplete: "off",
  };
  if (field.options) {
    const node = element("select", { class: "input", name: field.name },
      ...field.options.map(([value, name]) => element("option", { value }, name)));
    node.value = field.value ?? field.options[0][0];
    return node;
  }
  const node = element(field.isLong ? "textarea" : "input", { ...values, rows: field.isLong && 4 });
  node.value = field.value ?? "";
  return node;
}

// Ask for some fields and do the work with them. A refusal is shown in the dialog, and nothing that
// was typed is lost. Returns the result of the work, or undefined if the person cancelled.
export async function formDialog({ title, text, fields, confirm, tone = "primary", work }) {
  let result;
  const notice = element("p", { class: "form-error", role: "alert", hidden: true });
  const submit = element("button", { class: `button ${tone}` }, confirm);
  await openDialog(title, (close) => element("form", {
    class: "dialog-body form",
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        result = await work(Object.fromEntries(new FormData(event.target)));
        close("done");
      } catch (error) {
        notice.textContent = error.message;
        notice.hidden = false;
      }
      submit.disabled = false;
    },
  },
  text ? element("p", { class: "soft" }, text) : "",
  ...fields.map((field) => withLabel(field.label, control(field), field)), notice,
  element("div", { class: "actions" }, button("Cancel", () => close()), submit)));
  return result;
}

const waiting = new Set();

// Do some work after ten seconds, unless the person takes it back. If the page is closed before,
// the work is done at once: leaving does not undo it.
export function undoable({ text, run, onUndo = () => {} }) {
  return new Promise((resolve) => {
    const finish = (work) => {
      clearTimeout(timer);
      waiting.delete(atOnce);
      remove();
      resolve(attempt(work));
    };
    const atOnce = () => finish(() => run({ keepalive: true }));
    const timer = setTimeout(() => finish(() => run({})), UNDO_SECONDS * 1000);
    const remove = toast(text, {
      action: "Undo", run: () => finish(onUndo), shownFor: 2 * UNDO_SECONDS * 1000,
    });
    waiting.add(atOnce);
  });
}

window.addEventListener("pagehide", () => {
  for (const atOnce of [...waiting]) {
    atOnce();
  }
});

export { toast };
