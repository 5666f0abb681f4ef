// The one event stream of the console. Pages say which types of frames they follow.

import { Stream } from "../stream.js";

const FURTHER_TYPES = ["paused", "resumed", "processor_start"];

export class FrameSource {
  constructor(onState) {
    this.followers = new Set();
    this.position = "";
    this.stream = new Stream({
      url: "/api/events/stream?",
      types: FURTHER_TYPES,
      position: () => this.position,
      onPosition: (position) => { this.position = position; },
      onFrame: (frame) => this.#deliver(frame),
      onGap: () => this.#refreshAll(),
      onState: (state) => this.#onChange(state, onState),
    });
  }

  open() {
    this.stream.open();
  }

  add(follower, signal) {
    this.followers.add(follower);
    signal.addEventListener("abort", () => this.followers.delete(follower));
  }

  #deliver(frame) {
    for (const { types, wants, refresher } of this.followers) {
      if (types.has(frame.type) && wants(frame)) {
        refresher.want(frame);
      }
    }
  }

  // Numbers changed while the connection was away, and no frame reported it: read them again.
  #onChange(state, onState) {
    onState(state);
    if (state === "live" && this.wasAway) {
      this.#refreshAll();
    }
    this.wasAway = state !== "live";
  }

  #refreshAll() {
    for (const { refresher } of this.followers) {
      refresher.want();
    }
  }
}
