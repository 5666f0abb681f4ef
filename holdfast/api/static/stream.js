// The event stream: resumes by itself after whatever it last heard, across reloads, restarts and servers.

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8000;
const TYPES = [
  "message_received",
  "agent_routed",
  "chain_step_start",
  "chain_step_done",
  "chain_handoff",
  "response_ready",
  "message_failed",
];

export class Stream {
  // `position` and `onPosition` keep the id of the last frame; `onGap` hears that some are not kept any more.
  constructor({ url, position, onPosition, onFrame, onGap, onState }) {
    Object.assign(this, { url, position, onPosition, onFrame, onGap, onState });
    this.pause = FIRST_PAUSE;
  }

  open() {
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
    for (const type of TYPES) {
      source.addEventListener(type, (event) => {
        this.onFrame(JSON.parse(event.data));
        this.onPosition(event.lastEventId);
      });
    }
    source.addEventListener("error", () => this.#lost(source));
  }

  // The browser's own attempts end at the first refusal, such as that of a server about to stop: so they are ours.
  #lost(source) {
    source.close();
    if (source !== this.source) {
      return;
    }
    this.onState("away");
    setTimeout(() => this.open(), this.pause);
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
  }
}
