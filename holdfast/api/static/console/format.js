// Numbers and durations as operators read them.

import { element } from "../dom.js";
import { duration as lasting, exactly, timeElement } from "../time.js";

const COUNT = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hour12: false });
const SECONDS = new Intl.DateTimeFormat("en", {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
});
const DAY = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });
const TICK = 1000;
const NONE = "–";

function isMissing(value) {
  return value === null || value === undefined;
}

export function count(number) {
  return isMissing(number) ? NONE : COUNT.format(number);
}

export function compact(number) {
  return isMissing(number) || number < 10000 ? count(number) : COMPACT.format(number);
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function percent(share) {
  if (isMissing(share)) {
    return NONE;
  }
  const isNearEnd = (share > 0 && share < 0.1) || (share > 0.99 && share < 1);
  return `${(share * 100).toFixed(isNearEnd ? 1 : 0)} %`;
}

// Events in a minute. A rate below ten keeps one decimal.
export function rate(perMinute) {
  if (isMissing(perMinute)) {
    return NONE;
  }
  return perMinute === 0 || perMinute >= 10 ? count(Math.round(perMinute)) : perMinute.toFixed(1);
}

export function money(dollars) {
  if (isMissing(dollars)) {
    return NONE;
  }
  return `$${dollars.toFixed(dollars !== 0 && Math.abs(dollars) < 1 ? 4 : 2)}`;
}

export function duration(millis) {
  return isMissing(millis) ? NONE : lasting(millis);
}

// Milliseconds for an axis: short, in one unit.
export function axisDuration(millis) {
  if (isMissing(millis)) {
    return NONE;
  }
  for (const [unit, name] of [[3600000, "h"], [60000, "min"], [1000, "s"]]) {
    if (millis >= unit) {
      return `${Number((millis / unit).toFixed(1))} ${name}`;
    }
  }
  return `${Math.round(millis)} ms`;
}

export function clock(millis) {
  return CLOCK.format(millis);
}

export function clockWithSeconds(millis) {
  return SECONDS.format(millis);
}

export function day(millis) {
  return DAY.format(millis);
}

export function moment(millis, otherwise = NONE) {
  return isMissing(millis) ? element("span", { class: "soft" }, otherwise) : timeElement(millis);
}

// The time that has passed since a moment, for work in progress. It grows while it is shown.
export function elapsed(millis, otherwise = NONE) {
  if (isMissing(millis)) {
    return element("span", { class: "soft" }, otherwise);
  }
  const node = element("time", {
    class: "number", datetime: new Date(millis).toISOString(), title: `since ${exactly(millis)}`,
  }, lasting(wholeSeconds(millis)));
  node.dataset.since = millis;
  return node;
}

function wholeSeconds(millis) {
  const spent = Math.max(0, Date.now() - millis);
  return spent < TICK ? spent : Math.floor(spent / TICK) * TICK;
}

setInterval(() => {
  if (!document.hidden) {
    for (const node of document.querySelectorAll("time[data-since]")) {
      node.textContent = lasting(wholeSeconds(Number(node.dataset.since)));
    }
  }
}, TICK);
