// Files of a message: pictures as previews, the rest as cards. All of them can be downloaded.

import { element, hidden } from "../dom.js";
import { icon } from "../icons.js";
import { openDialog } from "../overlay.js";

const PICTURES = /^image\/(png|jpeg|gif|webp|avif)$/;
const READABLE = /^(application\/pdf|text\/plain|audio\/|video\/)/;
const UNITS = ["B", "kB", "MB", "GB"];

export function sizeText(bytes) {
  let size = bytes;
  let nth = 0;
  while (size >= 1000 && nth < UNITS.length - 1) {
    size /= 1000;
    nth += 1;
  }
  return `${nth && size < 10 ? size.toFixed(1) : Math.round(size)} ${UNITS[nth]}`;
}

export function isPicture({ type }) {
  return PICTURES.test(type ?? "");
}

export function addressOf({ id }, isInline = false) {
  return `/api/files/${encodeURIComponent(id)}${isInline ? "?inline=true" : ""}`;
}

function showPicture(file) {
  openDialog(file.name, (close) => element("div", { class: "dialog-body" },
    element("img", { class: "picture", src: addressOf(file, true), alt: file.name }),
    element("div", { class: "actions" },
      element("a", { class: "button", href: addressOf(file), download: file.name },
        icon("download"), "Download"),
      element("button", { type: "button", class: "button primary", onclick: () => close() },
        "Close"))), { class: "wide" });
}

function picture(file) {
  const image = element("img", {
    src: addressOf(file, true), alt: "", loading: "lazy", decoding: "async",
  });
  return element("li", { class: "attachment picture-tile" },
    element("button", { type: "button", title: file.name, onclick: () => showPicture(file) },
      image, hidden(`Open ${file.name}`)));
}

function card(file) {
  const isReadable = READABLE.test(file.type ?? "");
  return element("li", { class: "attachment file-card" },
    element("span", { class: "file-sign" }, icon("file")),
    element("span", { class: "file-name" }, element("strong", { dir: "auto" }, file.name),
      element("span", { class: "soft small" },
        [kindOf(file), file.size && sizeText(file.size)].filter(Boolean).join(" · "))),
    isReadable && element("a", {
      class: "icon-button small", href: addressOf(file, true), target: "_blank", rel: "noopener",
      title: `Open ${file.name}`,
    }, icon("search"), hidden(`Open ${file.name}`)),
    element("a", {
      class: "icon-button small", href: addressOf(file), download: file.name,
      title: `Download ${file.name}`,
    }, icon("download"), hidden(`Download ${file.name}`)));
}

function kindOf({ name }) {
  const end = /\.([A-Za-z0-9]{1,8})$/.exec(name ?? "");
  return end ? end[1].toUpperCase() : "File";
}

export function attachments(files, side) {
  if (!files?.length) {
    return [];
  }
  const items = files.map((file) => (isPicture(file) ? picture(file) : card(file)));
  return [element("ul", { class: `attachments ${side}` }, ...items)];
}

