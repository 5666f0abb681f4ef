// Answers that grow: the text written so far, by the message that a turn works on.
// Offsets count Unicode code points, not the UTF-16 units of JavaScript.

const NONE = { agent: "", generation: 0, text: "", length: 0 };

function lengthOf(text) {
  return [...text].length;
}

// Add a piece of text. Returns undefined if text before it is missing. A known piece changes
// nothing: after a reload, some frames are older than the status.
export function withDelta(partial, { agent, generation = 0, offset, text }) {
  if (partial && generation < partial.generation) {
    return partial;
  }
  const known = partial?.generation === generation ? partial : { ...NONE, agent, generation };
  if (offset > known.length) {
    return undefined;
  }
  const signs = [...text];
  const added = signs.slice(known.length - offset);
  return { ...known, text: known.text + added.join(""), length: known.length + added.length };
}

// Begin the text anew, unless the status is newer than this frame.
export function withReset(partial, { agent, generation = 0 }) {
  return partial && generation <= partial.generation ? partial : { ...NONE, agent, generation };
}

// Take the text of a status, unless later frames have come while it was on its way.
export function withStatus(partial, { agent, generation = 0, partial: text }) {
  const length = lengthOf(text);
  const isOlder = partial
    && (generation < partial.generation
      || (generation === partial.generation && length < partial.length));
  return isOlder ? partial : { agent, generation, text, length };
}
