// Small charts, drawn as SVG. Each has a name, a description and a table with the same numbers.

import { element, fold } from "../dom.js";
import { icon } from "../icons.js";
import { exactly as exact } from "../time.js";
import { axisDuration, clock, count, day } from "./format.js";

const SVG = icon("check").namespaceURI;
// The width until the page has laid the chart out; then it is drawn again at its real width.
const WIDTH = 340;
const HEIGHT = 140;
const LEFT = 44;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 22;
const DAY_MILLIS = 24 * 60 * 60 * 1000;
let serial = 0;

export function svg(name, values = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(values)) {
    if (value !== undefined && value !== null) {
      node.setAttribute(key, value);
    }
  }
  node.append(...children);
  return node;
}

// Round up to a number that reads well on an axis, like its half.
export function niceCeiling(value) {
  if (!(value > 0)) {
    return 1;
  }
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 4, 6, 8, 10].find((one) => one * power >= value * (1 - 1e-9));
  return step * power;
}

const ROUND_SECONDS = [1, 2, 4, 10, 20, 40, 60, 120, 240, 600, 1200, 2400, 3600, 7200, 14400];

// Milliseconds, rounded up to a duration whose half people read at a glance.
export function niceDuration(millis) {
  const round = ROUND_SECONDS.find((seconds) => seconds * 1000 >= millis);
  return millis < 1000 ? niceCeiling(millis) : (round ?? Math.ceil(millis / 36e5) * 3600) * 1000;
}

function scales({ points, series, least, ceiling, height }, width) {
  const highest = Math.max(0,
    ...series.flatMap((one) => points.map((point) => one.of(point) ?? 0)));
  const top = Math.max(ceiling(highest), least);
  const step = (width - LEFT - RIGHT) / Math.max(1, points.length);
  return {
    top,
    step,
    width,
    height,
    x: (index) => LEFT + step * (index + 0.5),
    y: (value) => TOP + (height - TOP - BOTTOM) * (1 - value / top),
  };
}

function gridLines({ top, y, width }, write) {
  return [0, 0.5, 1].flatMap((share) => [
    svg("line", {
      class: "chart-grid", x1: LEFT, x2: width - RIGHT, y1: y(top * share), y2: y(top * share),
    }),
    svg("text", {
      class: "chart-label", x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end",
    }, share ? write(top * share) : "0"),
  ]);
}

function timeLabels(points, { x, width, height }) {
  const wide = points.length > 1 && points.at(-1).at - points[0].at > 2 * DAY_MILLIS;
  const write = wide ? day : clock;
  const most = Math.max(2, Math.min(6, Math.floor((width - LEFT) / 64)));
  const every = Math.max(1, Math.ceil(points.length / most));
  return points.flatMap((point, index) => (index % every ? [] : [
    svg("text", {
      class: "chart-label", x: index ? x(index) : LEFT, y: height - 6,
      "text-anchor": index ? "middle" : "start",
    }, write(point.at)),
  ]));
}

// The runs of neighbouring points that have a value. A gap is not drawn as 0: a bucket without
// answers has no time to answer.
function runsOf(points, of, { x, y }) {
  const runs = [];
  let isOpen = false;
  points.forEach((point, index) => {
    const value = of(point);
    const has = value !== null && value !== undefined;
    if (has && !isOpen) {
      runs.push([]);
    }
    if (has) {
      runs.at(-1).push([x(index), y(value)]);
    }
    isOpen = has;
  });
  return runs;
}

// A curve through all points that never goes beyond its neighbours.
function curve(run) {
  const at = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return run.slice(1).reduce((path, [x, y], index) => {
    const [before, height] = run[index];
    const middle = (before + x) / 2;
    return `${path}C${at([middle, height])} ${at([middle, y])} ${at([x, y])}`;
  }, `M${at(run[0])}`);
}

function drawLine(points, one, scale) {
  const runs = runsOf(finished(points), one.of, scale);
  const dots = runs.filter((run) => run.length === 1).map(([[cx, cy]]) => (
    svg("circle", { class: `chart-dot ${one.tone}`, cx, cy, r: 2.5 })));
  return [
    svg("path", { class: `chart-line ${one.tone}`, d: runs.map(curve).join("") }), ...dots,
  ];
}

function drawArea(points, one, scale) {
  const floor = scale.y(0);
  const areas = runsOf(finished(points), one.of, scale).map((run) => (
    `${curve(run)}L${run.at(-1)[0]} ${floor}L${run[0][0]} ${floor}Z`));
  return [
    svg("path", { class: `chart-area ${one.tone}`, d: areas.join("") }),
    ...drawLine(points, one, scale),
  ];
}

// The points whose time is over. The last one still grows, so a line to it would seem to fall.
export function finished(points) {
  const span = points.length > 1 ? points[1].at - points[0].at : 0;
  const isOver = !span || points.at(-1).at + span <= Date.now();
  return isOver ? points : points.slice(0, -1);
}

function drawBars(points, one, { x, y, step }) {
  const width = Math.max(1, Math.min(14, step * 0.7));
  return points.flatMap((point, index) => {
    const value = one.of(point) ?? 0;
    return value > 0 ? [svg("rect", {
      class: `chart-bar ${one.tone}`, x: x(index) - width / 2, width, rx: 1,
      y: Math.min(y(value), y(0) - 1), height: Math.max(1, y(0) - y(value)),
    })] : [];
  });
}

const DRAW = { line: drawLine, area: drawArea, bars: drawBars };

function describe(points, series, write) {
  return series.map((one) => {
    const values = points.map(one.of).filter((value) => value !== null && value !== undefined);
    const highest = values.length ? write(Math.max(...values)) : "none";
    const latest = values.length ? write(values.at(-1)) : "none";
    return `${one.name}: highest ${highest}, latest ${latest}.`;
  }).join(" ");
}

function picture(given, width) {
  const { title, points, series, write } = given;
  serial += 1;
  const [titleId, descId] = [`chart-${serial}-title`, `chart-${serial}-desc`];
  const scale = scales(given, width);
  const drawing = svg("svg", {
    class: "chart-picture", viewBox: `0 0 ${width} ${scale.height}`, role: "img",
    "aria-labelledby": `${titleId} ${descId}`,
  },
  svg("title", { id: titleId }, title),
  svg("desc", { id: descId }, describe(points, series, write)),
  ...gridLines(scale, write), ...timeLabels(points, scale),
  ...series.flatMap((one) => DRAW[one.draw ?? "line"](points, one, scale)));
  return { drawing, scale };
}

// A line that follows the pointer, with the numbers of its bucket.
function addPointer(figure, drawing, { points, series, write, summary }, scale) {
  const rule = svg("line",
    { class: "chart-rule", y1: TOP, y2: scale.height - BOTTOM, visibility: "hidden" });
  const readout = figure.querySelector(".chart-readout");
    drawing.append(rule);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * scale.width;
    const index = Math.floor((at - LEFT) / scale.step);
    const point = points[index];
    if (point) {
      rule.setAttribute("visibility", "visible");
      rule.setAttribute("x1", scale.x(index));
      rule.setAttribute("x2", scale.x(index));
      const values = series.map((one) => `${one.name} ${write(one.of(point))}`);
      readout.textContent = [exact(point.at), ...values].join(" · ");
    }
  });
  drawing.addEventListener("pointerleave", () => {
    rule.setAttribute("visibility", "hidden");
    readout.textContent = summary;
  });
}

function tableOf({ title, points, series, write }) {
  const head = ["Time", ...series.map((one) => one.name)];
  const rows = points.map((point) => element("tr", {},
    element("th", { scope: "row" }, exact(point.at)),
    ...series.map((one) => element("td", { class: "number" }, write(one.of(point))))));
  return element("table", { class: "chart-table" },
    element("caption", { class: "hidden-text" }, title),
    element("thead", {}, element("tr", {},
      ...head.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows));
}

// The table is built when somebody opens it: a closed one would only cost time.
function alternative(chart) {
  const details = element("details", { class: "chart-numbers" },
    fold(element("span", {}, "Numbers",
      element("span", { class: "hidden-text" }, ` of ${chart.title}`))));
  details.addEventListener("toggle", () => {
    details.querySelector(".chart-scroll")?.remove();
    if (details.open) {
      details.append(element("div", { class: "chart-scroll", tabindex: "0", role: "region",
        "aria-label": `Numbers of ${chart.title}` }, tableOf(chart)));
    }
  });
  return details;
}

function legend(series) {
  return element("ul", { class: "chart-legend" }, ...series.map((one) => element("li", {},
    element("span", { class: `chart-key ${one.tone}`, "aria-hidden": "true" }), one.name)));
}

// Charts are drawn anew when their width changes: text keeps its size on every screen.
const widths = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    target.draw(Math.round(contentRect.width));
  }
});

// A chart over time. `points` have a time `at`; each of `series` has a name, a tone, a function
// `of` from point to number, and `draw`: line, area or bars.
export function chart({
  title, points, series, summary = "", isDuration = false, least = 2, height = HEIGHT,
}) {
  const [write, ceiling] = isDuration ? [axisDuration, niceDuration] : [count, niceCeiling];
  const given = { title, points, series, write, least, ceiling, summary, height };
  const box = element("div");
  const figure = element("figure", { class: "chart" },
    element("figcaption", { class: "chart-head" },
      element("h3", {}, title), legend(series),
      element("p", { class: "chart-readout" }, summary)),
    box, alternative(given));
  figure.draw = (width) => {
    if (width > LEFT + RIGHT && width !== figure.drawnWidth) {
      figure.drawnWidth = width;
      const { drawing, scale } = picture(given, width);
      box.replaceChildren(drawing);
      addPointer(figure, drawing, given, scale);
    }
  };
  figure.draw(WIDTH);
  widths.observe(figure);
  return figure;
}

// A line without axes for a tile; its numbers stand beside it as text. Buckets without a value are
// left out.
export function sparkline(points, of, tone) {
  const [width, height] = [120, 28];
  const values = finished(points).map(of);
  const top = Math.max(1, ...values.map((value) => value ?? 0));
  const step = width / Math.max(1, values.length - 1);
  const known = values.flatMap((value, index) => (value === null || value === undefined ? []
    : [[index * step, height - 2 - (value / top) * (height - 4)]]));
  if (known.length < 2) {
    return "";
  }
  const path = curve(known);
  const [start, end] = [known[0], known.at(-1)].map(([x]) => x.toFixed(1));
  const area = `${path}L${end} ${height}L${start} ${height}Z`;
  return svg("svg", {
    class: "sparkline", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true",
    preserveAspectRatio: "none",
  },
  svg("path", { class: `chart-area ${tone}`, d: area }),
  svg("path", { class: `chart-line ${tone}`, d: path }));
}
