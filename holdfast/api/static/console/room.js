// The room of a team: what its agents and people say to all, live, and a line of one's own.

import { ask, askPage } from "../ask.js";
import { avatar, element } from "../dom.js";
import { moment } from "./format.js";
import {
  action, allows, attempt, card, empty, reasonAgainst, showOnly, updateRows,
} from "./parts.js";

const PAGE = 50;
const FOLLOWED = ["message_received", "chain_step_done", "response_ready"];

function lineRow(line) {
  return element("li", { class: "room-line", "data-id": line.id }, avatar(line.from_agent),
    element("div", {},
      element("p", { class: "small" }, element("strong", { dir: "auto" }, line.from_agent), " ",
        element("span", { class: "soft" }, moment(line.created_at))),
      element("p", { class: "text", dir: "auto" }, line.message)));
}

class Room {
  constructor(page, team) {
    this.page = page;
    this.team = team;
    this.path = `/api/chatroom/${encodeURIComponent(page.params.team)}`;
    this.lines = element("ol", { class: "room", role: "log", "aria-live": "polite",
      "aria-label": "Lines of the room" });
    this.box = element("div");
    this.older = element("button", {
      type: "button", class: "button small", hidden: true,
      onclick: () => attempt(() => this.more()),
    }, "Show older lines");
    this.known = [];
    this.refresher = page.follow({ types: FOLLOWED, every: 5000, work: () => this.load() });
  }

  async load() {
    const { rows, next } = await askPage(`${this.path}?limit=${PAGE}`);
    const oldest = rows.at(-1)?.id ?? 0;
    const isFirst = !this.known.length;
    const wasAtEnd = this.#isAtEnd();
    this.known = [...this.known.filter((line) => line.id < oldest), ...[...rows].reverse()];
    if (isFirst) {
      this.next = next;
    }
    this.show();
    if (isFirst || wasAtEnd) {
      this.page.body.scrollTop = this.page.body.scrollHeight;
    }
  }

  async more() {
    const { rows, next } = await askPage(`${this.path}?limit=${PAGE}&before_id=${this.next}`);
    this.next = next;
    this.known = [...[...rows].reverse(), ...this.known];
    this.show();
  }

  show() {
    this.older.hidden = !this.next;
    updateRows(this.lines, this.known, (line) => line.id, lineRow);
    showOnly(this.box, this.known.length ? this.lines : empty("Nobody has said anything yet",
      "Agents of the team write here, and so can you.", { icon: "chat" }));
  }

  #isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.page.body;
    return scrollHeight - scrollTop - clientHeight < 120;
  }

  async say(input) {
    const message = input.value.trim();
    if (message) {
      await ask(this.path, { method: "POST", body: { message } });
      input.value = "";
      await this.refresher.now();
      this.page.body.scrollTop = this.page.body.scrollHeight;
    }
  }

  composer() {
    const { session } = this.page;
    if (!allows(session, "send")) {
      return element("p", { class: "role-note", role: "note" },
        `Writing here: ${reasonAgainst(session, "send")}`);
    }
    const input = element("textarea", {
      class: "input", rows: 2, dir: "auto", "aria-label": "Line for the room", required: true,
      placeholder: "Say something to every agent of the team",
    });
    const send = action(session, {
      label: "Send", needed: "send", tone: "primary", onclick: () => this.say(input),
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        attempt(() => this.say(input));
      }
    });
    return element("form", { class: "room-composer", onsubmit: (event) => event.preventDefault() },
      input, send);
  }
}

export async function open(page) {
  const id = page.params.team;
  const team = (await ask("/api/teams"))[id] ?? { name: id, agents: [] };
  page.head(team.name, {
    lead: team.agents.length ? `Room of ${team.agents.join(", ")}`
      : "This team is gone; its room stays",
    actions: [element("a", { class: "button small ghost", href: "/console/agents" }, "All agents")],
  });
  const room = new Room(page, team);
  page.body.replaceChildren(element("div", { class: "stack room-page" },
    card("Room", [room.older, room.box], { class: "no-head" }),
    team.agents.length ? room.composer() : ""));
  await room.refresher.first();
}
