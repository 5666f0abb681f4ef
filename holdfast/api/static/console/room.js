// The room of a team: what its agents and people say to all, live, and a line of one's own.

import { ask, askPage } from "../ask.js";
import { avatar, codeElements, element, iconButton, nobody } from "../dom.js";
import { renderText } from "../chat/markdown.js";
import { namesOf } from "./agents.js";
import { moment } from "./format.js";
import { allows, attempt, empty, updateRows, reasonAgainst, showOnly } from "./parts.js";

const PAGE = 50;
const FOLLOWED = ["message_received", "chain_step_done", "response_ready"];
// The author of a line that a person wrote.
const PERSON = "user";

function lineRow(names) {
  return (line) => {
    const isPerson = line.from_agent === PERSON;
    const name = names[line.from_agent] ?? line.from_agent;
    return element("li", { class: "room-line", "data-id": line.id },
      isPerson ? nobody() : avatar(name, line.from_agent),
      element("div", {},
        element("p", { class: "room-who" },
          element("strong", { dir: "auto" }, isPerson ? "A person" : name),
          element("span", { class: "soft small" }, moment(line.created_at))),
        isPerson ? element("p", { class: "text", dir: "auto" }, ...codeElements(line.message))
          : renderText({ html: line.html, text: line.message })));
  };
}

class Room {
  constructor(page, names) {
    this.page = page;
    this.names = names;
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
    const { rows, next } = await askPage(`${this.path}?html=true&limit=${PAGE}`);
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
    const { rows, next } = await askPage(
      `${this.path}?html=true&limit=${PAGE}&before_id=${this.next}`);
    this.next = next;
    this.known = [...[...rows].reverse(), ...this.known];
    this.show();
  }

  show() {
    this.older.hidden = !this.next;
    updateRows(this.lines, this.known, (line) => line.id, lineRow(this.names));
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
      rows: 1, dir: "auto", "aria-label": "Line for the room", required: true,
      placeholder: "Say something to every agent of the team",
    });
    const form = element("form", {
      class: "room-composer", onsubmit: (event) => {
        event.preventDefault();
        attempt(() => this.say(input));
      },
    }, element("div", { class: "room-box" }, input,
      iconButton("arrowUp", "Send", () => {}, { type: "submit", class: "room-send" })));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    return form;
  }
}

export async function open(page) {
  const id = page.params.team;
  const [teams, agents] = await Promise.all([ask("/api/teams"), ask("/api/agents")]);
  const team = teams[id] ?? { name: id, agents: [] };
  const names = namesOf(agents, Object.keys(agents));
  page.head(team.name, {
    lead: team.agents.length
      ? `Room of ${team.agents.map((agent) => names[agent] ?? agent).join(", ")}`
      : "This team is gone; its room stays",
    actions: [element("a", { class: "button small ghost", href: "/console/agents" }, "All agents")],
  });
  const room = new Room(page, names);
  page.body.replaceChildren(element("section", {
    class: "room-page", "aria-label": "Room",
  }, room.older, room.box, team.agents.length ? room.composer() : ""));
  await room.refresher.first();
}
