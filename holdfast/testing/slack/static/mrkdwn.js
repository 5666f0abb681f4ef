// Slack's mrkdwn as Slack shows it. Everything becomes elements and text nodes, never markup.

const EMOJI = {
  robot_face: "🤖", memo: "📝", hammer_and_wrench: "🛠️", eyes: "👀", white_check_mark: "✅",
  warning: "⚠️", x: "❌", tada: "🎉", rocket: "🚀", thumbsup: "👍", wave: "👋", fire: "🔥",
  hourglass_flowing_sand: "⏳", mag: "🔍", bulb: "💡", smile: "😄", heart: "❤️", bug: "🐛",
};
const MARKS = { "*": "strong", _: "em", "~": "s" };
const DEEPEST = 3;

export function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) {
    made.className = className;
  }
  made.append(...children.filter((child) => child !== undefined && child !== ""));
  return made;
}

export function unescapeText(text) {
  return text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

export function emoji(name) {
  return EMOJI[name.replaceAll(":", "")];
}

// Pieces that are found before any formatting: code, links and mentions, emoji.
const PIECES = /`([^`\n]+)`|<([@#!]?)([^<>|\n]+)(?:\|([^<>\n]*))?>|:([a-z0-9_+-]{1,40}):/g;

function reference(sign, target, label, names) {
  if (sign === "@") {
    return element("span", "mention", `@${names.users[target] ?? label ?? target}`);
  }
  if (sign === "#") {
    return element("span", "mention", `#${label || names.rooms[target] || target}`);
  }
  if (sign === "!") {
    return element("span", "mention", `@${label || target.split("^")[0]}`);
  }
  const address = unescapeText(target);
  if (!/^(https?:|mailto:)/.test(address)) {
    return `<${unescapeText(label ? `${target}|${label}` : target)}>`;
  }
  const link = element("a", "", unescapeText(label || target));
  link.href = address;
  link.rel = "noopener noreferrer";
  link.target = "_blank";
  return link;
}

// Bold, italics and strikes begin after a blank or a sign and end before one, as in Slack.
function findMark(text, from) {
  for (let at = from; at < text.length; at += 1) {
    const sign = text[at];
    const isFree = MARKS[sign] && !/\w/.test(text[at - 1] ?? " ");
    const isStart = isFree && /\S/.test(text[at + 1] ?? " ");
    const end = isStart && text[at + 1] !== sign ? text.indexOf(sign, at + 2) : -1;
    const isEnd = end > 0 && /\S/.test(text[end - 1]) && !/\w/.test(text[end + 1] ?? " ");
    if (isEnd) {
      return { at, end, tag: MARKS[sign] };
    }
  }
  return undefined;
}

function format(text, depth = 0) {
  const parts = [];
  let from = 0;
  let found = depth < DEEPEST ? findMark(text, 0) : undefined;
  while (found) {
    parts.push(unescapeText(text.slice(from, found.at)));
    const inner = text.slice(found.at + 1, found.end);
    parts.push(element(found.tag, "", ...format(inner, depth + 1)));
    from = found.end + 1;
    found = findMark(text, from);
  }
  return [...parts, unescapeText(text.slice(from))];
}

// A line: references are held out as private signs while marks are looked for around them.
function line(text, names) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(PIECES)) {
    const [all, code, sign, target, label, name] = found;
    const isKnown = name === undefined || emoji(name);
    if (isKnown) {
      parts.push(...format(text.slice(from, found.index)));
      parts.push(piece({ code, sign, target, label, name }, names));
      from = found.index + all.length;
    }
  }
  return [...parts, ...format(text.slice(from))];
}

function piece({ code, sign, target, label, name }, names) {
  if (code !== undefined) {
    return element("code", "", unescapeText(code));
  }
  return name ? emoji(name) : reference(sign, target, label, names);
}

// Lines with the same kind of beginning stay together: quotes and lists are blocks.
function kindOf(text) {
  if (text.startsWith("&gt;")) {
    return "quote";
  }
  return /^\s*(•|\d+\.)\s/.test(text) ? "list" : "plain";
}

function block(kind, lines, names) {
  const strip = { quote: /^&gt; ?/, list: /^\s*•\s+/, plain: /^$/ }[kind];
  if (kind === "list") {
    return element("ul", "", ...lines.map((text) => {
      const item = element("li", /^\s*•/.test(text) ? "" : "numbered",
        ...line(text.replace(strip, ""), names));
      return item;
    }));
  }
  const content = lines.flatMap((text, nth) => [
    ...(nth ? [element("br")] : []), ...line(text.replace(strip, ""), names),
  ]);
  return element(kind === "quote" ? "blockquote" : "p", "", ...content);
}

function prose(text, names) {
  const blocks = [];
  for (const one of text.split("\n")) {
    const kind = kindOf(one);
    const last = blocks.at(-1);
    if (last?.kind === kind) {
      last.lines.push(one);
    } else {
      blocks.push({ kind, lines: [one] });
    }
  }
  return blocks.filter(({ lines }) => lines.some((one) => one.trim()))
    .map(({ kind, lines }) => block(kind, lines, names));
}

// Render a text; `names` has users and rooms by id.
export function mrkdwn(text, names) {
  const box = element("div", "text");
  box.dir = "auto";
  text.split(/```\n?([\s\S]*?)(?:```|$)/).forEach((part, nth) => {
    box.append(...(nth % 2
      ? [element("pre", "", unescapeText(part.replace(/\n$/, "")))]
      : prose(part, names)));
  });
  return box;
}
