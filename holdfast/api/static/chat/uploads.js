// Files of the message that is being written: chosen, dropped or pasted, uploaded at once.

import { ask } from "../ask.js";
import { element, iconButton } from "../dom.js";
import { icon } from "../icons.js";
import { addressOf, isPicture, sizeText } from "./attachments.js";

let numbers = 0;

export class Uploads {
  // `onChange` is called when a file was added, is there, failed or was removed.
  constructor({ list, onChange }) {
    Object.assign(this, { list, onChange });
    this.items = [];
    this.limits = { maxUpload: Infinity, maxFiles: 20 };
  }

  get isBusy() {
    return this.items.some(({ state }) => state === "uploading");
  }

  // Files that are on the server.
  get ready() {
    return this.items.filter(({ state }) => state === "ready").map(({ file }) => file);
  }

  // Show the files of a draft.
  restore(files) {
    this.items.forEach(({ request }) => request?.abort());
    this.items = files.map((file) => ({ key: numbers++, file, state: "ready" }));
    this.#show();
  }

  clear() {
    this.items = [];
    this.#show();
  }

  add(files) {
    for (const blob of files) {
      const { size, type } = blob;
      const item = { key: numbers++, file: { name: nameOf(blob), size, type } };
      this.items.push(item);
      item.error = this.#refusal(blob);
      item.state = item.error ? "failed" : "uploading";
      if (!item.error) {
        this.#upload(item, blob);
      }
    }
    this.#show();
    this.onChange();
  }

  #refusal(blob) {
    if (this.items.length > this.limits.maxFiles) {
      return `at most ${this.limits.maxFiles} files`;
    }
    if (blob.size > this.limits.maxUpload) {
      return `larger than ${sizeText(this.limits.maxUpload)}`;
    }
    return blob.size ? undefined : "empty";
  }

  // XMLHttpRequest tells how much has been sent; fetch does not.
  #upload(item, blob) {
    const request = new XMLHttpRequest();
    item.request = request;
    request.open("POST", `/api/files?name=${encodeURIComponent(item.file.name)}`);
    request.upload.addEventListener("progress", ({ loaded, total }) => {
      item.share = total ? loaded / total : 0;
      const bar = this.list.querySelector(`[data-item="${item.key}"] progress`);
      if (bar) {
        bar.value = item.share;
      }
    });
    request.addEventListener("load", () => this.#onEnd(item, request));
    request.addEventListener("error", () => this.#onFailure(item, "no connection"));
    request.send(blob);
  }

  #onEnd(item, request) {
    let answer = {};
    try {
      answer = JSON.parse(request.responseText);
    } catch {
      // A proxy may answer with a page of its own.
    }
    if (request.status !== 200) {
      this.#onFailure(item, answer.error ?? `the server answered ${request.status}`);
      return;
    }
    item.state = "ready";
    item.file = answer;
    this.#show();
    this.onChange();
  }

  #onFailure(item, error) {
    item.state = "failed";
    item.error = error;
    this.#show();
    this.onChange();
  }

  async remove(item) {
    item.request?.abort();
    this.items = this.items.filter((one) => one !== item);
    this.#show();
    this.onChange();
    if (item.state === "ready") {
      const path = `/api/files/${encodeURIComponent(item.file.id)}`;
      await ask(path, { method: "DELETE" }).catch(() => undefined);
    }
  }

  #show() {
    this.list.hidden = !this.items.length;
    this.list.replaceChildren(...this.items.map((item) => this.#chip(item)));
  }

  #chip(item) {
    const { file, state, error, share = 0 } = item;
    const preview = state === "ready" && isPicture(file)
      ? element("img", { src: addressOf(file, true), alt: "" })
      : icon(isPicture(file) ? "image" : "file");
    const about = error ?? (state === "uploading" ? "uploading" : sizeText(file.size));
    const bar = element("progress", { max: "1", value: String(share) });
    bar.setAttribute("aria-label", `Upload of ${file.name}`);
    return element("li", { class: "chip", "data-state": state, "data-item": item.key },
      element("span", { class: "chip-sign" }, preview),
      element("span", { class: "chip-text" },
        element("span", { class: "clip", dir: "auto" }, file.name),
        element("span", { class: "soft small", role: error ? "alert" : undefined }, about),
        state === "uploading" ? bar : ""),
      iconButton("close", `Remove ${file.name}`, () => this.remove(item), {
        class: "icon-button small",
      }));
  }
}

// A pasted picture has no name of its own.
function nameOf(blob) {
  const end = (blob.type.split("/")[1] ?? "bin").replace("jpeg", "jpg");
  return blob.name?.trim() || `pasted.${end}`;
}
