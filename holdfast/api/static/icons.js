// Icons as paths on a grid of 24. They take colour and size from the text around them.

const PATHS = {
  agents: "M12 4v3M6 8h12v10H6zM9.5 12v1.5M14.5 12v1.5M3 12v3M21 12v3",
  archive: "M4 5h16v4H4zM5.5 9v10h13V9M10 13h4",
  arrowDown: "M12 5v14M6 13l6 6 6-6",
  arrowUp: "M12 19V5M6 11l6-6 6 6",
  attach: "M19 11.5l-7.2 7.2a4.6 4.6 0 0 1-6.5-6.5l7.9-7.9a3.1 3.1 0 0 1 4.4 4.4l-7.6 7.6"
    + "a1.5 1.5 0 0 1-2.2-2.2l6.7-6.6",
  chat: "M4 6.5A1.5 1.5 0 0 1 5.5 5h13A1.5 1.5 0 0 1 20 6.5v9a1.5 1.5 0 0 1-1.5 1.5H11l-5 3.5V17"
    + "h-.5A1.5 1.5 0 0 1 4 15.5z",
  check: "M5 12.5l4.5 4.5L19 7.5",
  chevronDown: "M7 10l5 5 5-5",
  chevronLeft: "M14 7l-5 5 5 5",
  chevronRight: "M10 7l5 5-5 5",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4.5l3 2",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  dead: "M4 6h16v12H4zM4 7l8 6.5L20 7M9.5 21.5l5-5M14.5 21.5l-5-5",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  edit: "M5 19l1-4L16.5 4.5l3 3L9 18zM14.5 6.5l3 3",
  file: "M6 3.5h8L18.5 8v12.5H6zM14 3.5V8h4.5",
  image: "M4 5h16v14H4zM8.5 8.5a1.2 1.2 0 1 0 0 2.4 1.2 1.2 0 0 0 0-2.4z"
    + "M4.5 18l5.5-5 3 2.5 3-3 4 4",
  key: "M8 11a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM11 12.2L20 4M16.5 7l2.5 2.5M14 9.5l2 2",
  keyboard: "M3 7h18v10H3zM7 10.5h.01M10.3 10.5h.01M13.7 10.5h.01M17 10.5h.01M8 14h8",
  logout: "M13 5H5v14h8M10 12h10M16.5 8.5L20 12l-3.5 3.5",
  memory: "M12 4c4.4 0 7 1.2 7 3s-2.6 3-7 3-7-1.2-7-3 2.6-3 7-3zM5 7v10c0 1.8 2.6 3 7 3s7-1.2 7-3"
    + "V7M5 12c0 1.8 2.6 3 7 3s7-1.2 7-3",
  menu: "M4 7h16M4 12h16M4 17h16",
  messages: "M4 6h16M4 12h16M4 18h10",
  monitor: "M4 5h16v11H4zM9 20h6M12 16v4",
  moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z",
  more: "M5 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0M11 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0M17 12a1 1 0 1 0 2 0"
    + "a1 1 0 1 0-2 0",
  overview: "M4 19V5M4 19h16M8 16v-4M12 16V8M16 16v-6",
  pause: "M8 5v14M16 5v14",
  person: "M12 4.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM5 20c0-3.6 2.9-6 7-6s7 2.4 7 6",
  pin: "M9 4h6l-1 6 3.5 3.5h-11L10 10zM12 13.5V20",
  play: "M8 5l11 7-11 7z",
  plus: "M12 5v14M5 12h14",
  refresh: "M19 12a7 7 0 1 1-2.3-5.2M19 4v4.5h-4.5",
  search: "M10.5 4.5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM15 15l5 5",
  settings: "M4 8h9M17 8h3M15 6v4M4 16h3M11 16h9M9 14v4",
  steps: "M5 6h.01M5 12h.01M5 18h.01M9.5 6H20M9.5 12H20M9.5 18H20",
  stop: "M7 7h10v10H7z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4"
    + "M17.3 17.3l1.4 1.4M18.7 5.3l-1.4 1.4M6.7 17.3l-1.4 1.4",
  team: "M9 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM3.5 19c0-3.3 2.2-5.5 5.5-5.5s5.5 2.2 5.5 5.5M16 5.5"
    + "a2.7 2.7 0 0 1 0 5.2M17.5 14c2 .7 3 2.5 3 5",
  tool: "M14 6.5a4 4 0 0 1 5.4 5L9.5 20.5l-4-4L14.5 7z",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l.8 13h8.4L17 7M10.5 11v5M13.5 11v5",
  warning: "M12 4.5l9 15H3zM12 10.5v4M12 17h.01",
};

const SVG = "http://www.w3.org/2000/svg";

// An icon is decoration: the name of a control is always in its text.
export function icon(name, className = "") {
  const node = document.createElementNS(SVG, "svg");
  node.setAttribute("viewBox", "0 0 24 24");
  node.setAttribute("class", `icon ${className}`.trim());
  node.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  node.append(path);
  return node;
}
