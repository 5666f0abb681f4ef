// A card for a turn that waits for a person: its question and the possible answers.

import { button, element } from "../dom.js";
import { icon } from "../icons.js";
import { timeElement } from "../time.js";

// A row of buttons: {label, signal, value, message_id or messageId}.
export function choices(options, onSignal) {
  return element("div", { class: "actions choices" }, ...options.map((option, nth) => {
    const { label, signal, value = null } = option;
    return button(label, () => onSignal(option.message_id ?? option.messageId, signal, value), {
      class: nth ? "button" : "button primary", dir: "auto", "data-key": `option-${nth}`,
    });
  }));
}

function free({ signal }, answer) {
  const input = element("input", { class: "input", required: true, dir: "auto" });
  input.setAttribute("aria-label", `Reply to ${signal}`);
  return element("form", {
    class: "actions",
    onsubmit: (event) => {
      event.preventDefault();
      answer(signal, input.value);
    },
  }, input, element("button", { class: "button primary", "data-key": "reply" }, "Reply"));
}

export function approval(waiting, { agent, onSignal }) {
  const { prompt, options, until, signal } = waiting;
  const { messageId } = waiting;
  const answer = (name, value) => onSignal(messageId, name, value);
  const head = element("p", { class: "approval-head" }, icon("clock"),
    element("strong", {}, `${agent || "The agent"} waits for your answer`),
    until ? element("span", { class: "soft small" }, "ends ", timeElement(until)) : undefined);
  const controls = options?.length
    ? choices(options.map((one) => ({ ...one, signal, messageId })), onSignal)
    : free(waiting, answer);
  const card = element("div", { class: "card approval", role: "group" }, head,
    element("p", { dir: "auto" }, prompt || `It continues after the signal “${signal}”.`),
    onSignal ? controls : element("p", { class: "soft small" }, "This login may only look."));
  card.setAttribute("aria-label", "Approval");
  return card;
}
