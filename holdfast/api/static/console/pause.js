// Pause and resume an agent, a queue or a channel. It is durable and holds for all processes.

import { ask } from "../ask.js";
import { element } from "../dom.js";
import { moment } from "./format.js";
import { formDialog, toast } from "./forms.js";
import { action, badge } from "./parts.js";

const MEANING = {
  agent: "Messages to it are stored and wait. Turns that run now finish.",
  queue: "Nothing in it is worked, by any process. Turns that run now finish.",
  channel: "It still receives. Its responses wait until it is resumed.",
};

export function pathOf(kind, name) {
  return `/api/pauses/${encodeURIComponent(kind)}/${encodeURIComponent(name)}`;
}

export function pauseButton(session, { kind, name, paused, refresh }) {
  return paused
    ? action(session, {
      label: "Resume", name: `the ${kind} ${name}`, tone: "primary", onclick: async () => {
        await ask(pathOf(kind, name), { method: "DELETE" });
        toast(`The ${kind} ${name} goes on`);
        await refresh();
      },
    })
    : action(session, {
      label: "Pause", name: `the ${kind} ${name}`, onclick: async () => {
        const made = await formDialog({
          title: `Pause the ${kind} ${name}?`, text: MEANING[kind], confirm: "Pause",
          tone: "danger",
          fields: [{ name: "reason", label: "Reason", placeholder: "for your colleagues",
            maxlength: 500 }],
          work: ({ reason }) => ask("/api/pauses", {
            method: "POST", body: { kind, name, reason: reason.trim() || undefined },
          }),
        });
        if (made) {
          toast(`The ${kind} ${name} is paused, in all processes`);
          await refresh();
        }
      },
    });
}

export function pausedBadge(paused) {
  return paused ? badge("paused", "wait", {
    title: [paused.by && `by ${paused.by}`, paused.reason].filter(Boolean).join(": "),
  }) : "";
}

export function pausedNote(paused) {
  return paused ? element("p", { class: "paused-note small" }, "Paused ", moment(paused.at),
    paused.by ? ` by ${paused.by}` : "", paused.reason ? `: ${paused.reason}` : "") : "";
}
