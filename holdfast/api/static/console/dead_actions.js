// Retry and discard of dead letters: a preview of how many, then ten seconds to take it back.

import { ask } from "../ask.js";
import { button, element } from "../dom.js";
import { confirmAction as agreed, openDialog } from "../overlay.js";
import { plural } from "./format.js";
import { toast, undoable } from "./forms.js";

const WORDS = {
  retry: { verb: "Retry", doing: "will be retried", done: "retried", tone: "primary" },
  discard: { verb: "Discard", doing: "will be discarded", done: "discarded", tone: "danger" },
};
const EXPLAINED = {
  retry: "They keep their ids and get all of their attempts again.",
  discard: "Their texts and errors are deleted. Only ids and times stay.",
};
const MOST_AT_ONCE = 4;

async function post(kind, body, options = {}) {
  return ask(`/api/dead/groups/${kind}`, { method: "POST", body, ...options });
}

async function sumOver(kind, bodies, further, options) {
  const total = { count: 0, skipped: 0 };
  for (let at = 0; at < bodies.length; at += MOST_AT_ONCE) {
    const some = bodies.slice(at, at + MOST_AT_ONCE);
    const answers = await Promise.all(some.map((body) => (
      repeatedly(kind, { ...body, ...further }, options))));
    for (const { count, skipped } of answers) {
      total.count += count;
      total.skipped += skipped;
    }
  }
  return total;
}

// A call does at most 10,000 letters and says whether some are left.
async function repeatedly(kind, body, options) {
  const total = { count: 0, skipped: 0 };
  let answer;
  do {
    answer = await post(kind, body, options);
    total.count += answer.count;
    total.skipped += answer.skipped;
  } while (answer.more && answer.count && !body.dryRun);
  return total;
}

// Ask how many it would be, let the person agree, and do it after ten seconds unless undone.
export async function act({ kind, bodies, hint = "", assume, cards = [], isOne = false, settled }) {
  const { verb, doing, tone } = WORDS[kind];
  const further = assume ? { assume } : {};
  const preview = isOne ? { count: 1 } : await sumOver(kind, bodies, { ...further, dryRun: true });
  if (!preview.count) {
    toast("Nothing is left to do: somebody else was faster.");
    await settled({ count: 0, expected: 0 });
    return;
  }
  const what = plural(preview.count, "dead letter");
  const isAgreed = isOne || await agreed({
    title: `${verb} ${what}?`, text: EXPLAINED[kind] + hint, action: `${verb} ${what}`,
    kind: tone,
  });
  if (!isAgreed) {
    return;
  }
  const mark = (state) => cards.forEach((card) => card.setPending(state));
  mark(kind);
  await undoable({
    text: `${what} ${doing}.`,
    onUndo: () => mark(""),
    run: async (options) => {
      try {
        const done = await sumOver(kind, bodies, further, options);
        await settled({ ...done, expected: preview.count });
      } finally {
        mark("");
      }
    },
  });
}

// Say how it went. Somebody else may have been faster with some of them.
export function settle(kind, { count, expected }) {
  const missing = expected - count;
  const others = missing > 0 ? ` ${plural(missing, "letter")} had been taken care of already.` : "";
  toast(`${plural(count, "dead letter")} ${WORDS[kind].done}.${others}`);
}

// A call that may have happened is never repeated blindly: the person says whether it did.
export function askAssumption(name) {
  const choose = (close, value, label) => button(label, () => close(value));
  return openDialog("Did the call happen?", (close) => element("div", { class: "dialog-body form" },
    element("p", { class: "soft" }, `${name} stopped in the middle of a call that must not be made `
      + "twice. Look at the other system, then say whether the call went through."),
    element("div", { class: "actions" },
      button("Cancel", () => close()),
      choose(close, "not-done", "It did not: call again"),
      choose(close, "done", "It did: go on"))));
}
