// Work that follows the event stream, coalesced: however many frames arrive, a page asks the server
// at most once in its interval, never twice at once, and not at all while its tab is hidden.

const INTERVAL = 1000;
const MOST_FRAMES = 500;
// A server that answers slowly is asked less often.
const SHARE_OF_TIME = 4;

export class Refresher {
  constructor({ work, interval = INTERVAL, every, signal, onError = () => {} }) {
    Object.assign(this, { work, interval, signal, onError });
    this.frames = [];
    this.pause = interval;
    this.isRunning = false;
    this.isWanted = false;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.#schedule(0), { signal });
    const clock = every ? setInterval(() => this.want(), every) : 0;
    signal.addEventListener("abort", () => {
      clearTimeout(this.timer);
      clearInterval(clock);
    });
  }

  // Ask soon. Frames are handed to the work in order, the latest 500 of them.
  want(frame) {
    if (frame) {
      this.frames.push(frame);
      if (this.frames.length > 2 * MOST_FRAMES) {
        this.frames = this.frames.slice(-MOST_FRAMES);
      }
    }
    this.isWanted = true;
    this.#schedule(this.pause);
  }

  // Ask at once, as after an action of the person.
  async now() {
    this.isWanted = true;
    clearTimeout(this.timer);
    this.timer = 0;
    await this.running;
    return this.#run();
  }

  // Ask for the first time. Throws, so that a page that cannot be loaded shows the error.
  async first() {
    await this.work([]);
    this.hasLoaded = true;
  }

  #schedule(pause) {
    if (this.isWanted && !this.timer && !this.isRunning && !document.hidden) {
      this.timer = setTimeout(() => this.#run(), pause);
    }
  }

  #run() {
    this.timer = 0;
    if (this.isRunning || this.signal.aborted) {
      return this.running;
    }
    this.isRunning = true;
    this.isWanted = false;
    this.running = this.#work().finally(() => {
      this.isRunning = false;
      this.#schedule(this.pause);
    });
    return this.running;
  }

  async #work() {
    const frames = this.frames.slice(-MOST_FRAMES);
    this.frames = [];
    const startedAt = performance.now();
    try {
      await this.work(frames);
    } catch (error) {
      if (!this.signal.aborted) {
        this.onError(error);
      }
    }
    this.pause = Math.max(this.interval, SHARE_OF_TIME * (performance.now() - startedAt));
  }
}
