// The event stream. It resumes after the last frame, across reloads, restarts and servers.

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8000;
const TYPES = [
  "conversation_changed",
  "conversation_deleted",
  "message_received",
  "agent_routed",
  "chain_step_start",
  "chain_step_done",
  "chain_handoff",
  "step_start",
  "step_done",
  "progress",
  "response_delta",
  "response_reset",
  "response_ready",
  "message_failed",
];

export class Stream {
  // `position` and `onPosition` keep the id of the last frame. `onGap` is called when frames
  // since then are no longer stored. `url` has a query; `types` are further types of frames.
  constructor({ url, types = [], position, onPosition, onFrame, onGap, onState }) {
    Object.assign(this, { url, position, onPosition, onFrame, onGap, onState });
    this.types = [...TYPES, ...types];
    this.pause = FIRST_PAUSE;
    addEventListener("online", () => this.#retryNow());
    addEventListener("offline", () => this.source && this.#onLoss(this.source));
  }

  open() {
    clearTimeout(this.timer);
    const since = this.position();
    const query = since ? `&last_event_id=${encodeURIComponent(since)}` : "";
    const source = new EventSource(this.url + query);
    this.source = source;
    source.addEventListener("connected", (event) => {
      this.pause = FIRST_PAUSE;
      this.onPosition(event.lastEventId);
      this.onState("live");
    });
    source.addEventListener("gap", (event) => {
      this.onPosition(event.lastEventId);
      this.onGap();
    });
    for (const type of this.types) {
      source.addEventListener(type, (event) => {
        this.onFrame(JSON.parse(event.data));
        this.onPosition(event.lastEventId);
      });
    }
    source.addEventListener("error", () => this.#onLoss(source));
  }

  // A browser stops reconnecting at the first refusal, such as a 503 of a server that is stopping.
  // So the page reconnects by itself.
  #onLoss(source) {
    source.close();
    if (source !== this.source) {
      return;
    }
    this.source = null;
    this.onState("away");
    this.timer = setTimeout(() => this.open(), this.pause);
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
  }

  // The network is back: there is no reason to wait for the end of the pause.
  #retryNow() {
    if (!this.source) {
      clearTimeout(this.timer);
      this.pause = FIRST_PAUSE;
      this.open();
    }
  }
}
