// Times: relative in the text, exact on hover. One timer keeps all of them right.

import { element } from "./dom.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const EVERY = 30 * SECOND;

const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const dayAndYear = new Intl.DateTimeFormat(undefined, {
  day: "numeric", month: "short", year: "numeric",
});
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

export function relative(millis, now = Date.now()) {
  const age = now - millis;
  if (age < -MINUTE) {
    return `in ${duration(-age)}`;
  }
  if (age < MINUTE) {
    return "just now";
  }
  if (age < HOUR) {
    return `${Math.floor(age / MINUTE)} min ago`;
  }
  if (age < DAY) {
    return `${Math.floor(age / HOUR)} h ago`;
  }
  if (age < 7 * DAY) {
    return `${Math.floor(age / DAY)} d ago`;
  }
  const isThisYear = new Date(millis).getFullYear() === new Date(now).getFullYear();
  return (isThisYear ? day : dayAndYear).format(millis);
}

// A duration in one or two units: 340 ms, 4.2 s, 3 min 5 s, 2 h 10 min.
export function duration(millis) {
  if (millis < SECOND) {
    return `${Math.max(0, Math.round(millis))} ms`;
  }
  if (millis < MINUTE) {
    const seconds = millis / SECOND;
    return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  }
  if (millis < HOUR) {
    const seconds = Math.round(millis / SECOND);
    return `${Math.floor(seconds / 60)} min${seconds % 60 ? ` ${seconds % 60} s` : ""}`;
  }
  if (millis < DAY) {
    const minutes = Math.round(millis / MINUTE);
    return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
  }
  return `${Math.floor(millis / DAY)} d`;
}

export function exactly(millis) {
  return exact.format(millis);
}

// The same for a narrow place: 12 min, 3 h, 2 d.
function brief(millis, now) {
  const text = relative(millis, now);
  return text === "just now" ? "now" : text.replace(/ ago$/, "");
}

// A <time> element that stays right while the page is open.
export function timeElement(millis, { isBrief = false, ...values } = {}) {
  const node = element("time", {
    datetime: new Date(millis).toISOString(), "data-brief": isBrief, ...values,
  }, (isBrief ? brief : relative)(millis));
  node.dataset.millis = millis;
  return node;
}

// To format an exact time is slow, so it waits until somebody points at it.
document.addEventListener("pointerover", ({ target }) => {
  if (target.dataset?.millis && !target.title) {
    target.title = exactly(Number(target.dataset.millis));
  }
});

function update() {
  const now = Date.now();
  for (const node of document.querySelectorAll("time[data-millis]")) {
    const write = "brief" in node.dataset ? brief : relative;
    const text = write(Number(node.dataset.millis), now);
    if (node.textContent !== text) {
      node.textContent = text;
    }
  }
}

setInterval(update, EVERY);
