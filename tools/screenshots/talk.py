"""The activity that the pictures show: conversations, tokens, schedules, a room."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

from playwright.async_api import Page

# The topic of a conversation, its text, the agent, and how long ago it was.
QUESTIONS = (
    ("notes", "Draft the release notes for 0.8", None, timedelta(days=2, hours=3)),
    ("incident", "Summarise the incident of last night", None, timedelta(days=1, hours=5)),
    ("outbox", "Why is the outbox growing?", None, timedelta(hours=5)),
    ("mail", "Translate the welcome mail", None, timedelta(hours=3)),
    ("ship", "Ship 0.8.0, please", "deployer", timedelta(minutes=41)),
    ("desk", "Please check the plan for the lane column", "desk", timedelta(minutes=24)),
    ("plan", "How do we migrate the lane column without downtime?", None, timedelta(minutes=8)),
)
UNREAD = "mail"
TOKENS: tuple[dict[str, Any], ...] = (
    {"name": "ci", "role": "send", "agents": ["planner"], "expires": "30d"},
    {"name": "dashboard", "role": "read"},
    {"name": "grace", "role": "admin"},
    {"name": "billing bot", "role": "send", "channels": ["api"], "expires": "90d"},
)
SCHEDULES = (
    ("0 9 * * mon-fri", "Prepare the stand-up", "guide", "Europe/Berlin"),
    ("every 30 min", "Look at the error budget", "guide", "UTC"),
    ("0 7 1 * *", "List the invoices that are older than 60 days", "planner", "UTC"),
)
LINE = "Who reviews the plan for the lane column?"
NOTE = "The provider had an outage; retry after 14:00."

# Every moment of a conversation moves back: {by} microseconds, the events of {of}.
_EVENTS = "select id from event_hist where json_extract(event, '$.conversation') = :of"
AGE = (
    "update step set started_at = started_at - :by, ended_at = ended_at - :by"
    f" where event_id in ({_EVENTS} union select id from event"
    " where json_extract(event, '$.conversation') = :of)",
    "update event set event_ts = event_ts - :by, created_at = created_at - :by,"
    " updated_at = updated_at - :by,"
    " claimed = (select json_group_array(value - :by) from json_each(claimed))"
    " where json_extract(event, '$.conversation') = :of",
    "update event_hist set event_ts = event_ts - :by, created_at = created_at - :by,"
    " updated_at = updated_at - :by, finished_at = finished_at - :by,"
    " claimed = (select json_group_array(value - :by) from json_each(claimed))"
    " where json_extract(event, '$.conversation') = :of",
    "update agent_message set created_at = created_at - :by where conversation = :of",
    "update conversation set created_at = created_at - :by, updated_at = updated_at - :by"
    " where conversation = :of",
)


async def call(page: Page, path: str, body: dict[str, Any] | None = None) -> Any:
    """Ask the server as the person who is logged in."""
    return await page.evaluate(
        """async ([path, body]) => {
          const options = body && {
            method: "POST", body: JSON.stringify(body),
            headers: { "content-type": "application/json" },
          };
          const answer = await fetch(path, options ?? {});
          if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
          return answer.json();
        }""",
        [path, body],
    )


async def talk(page: Page) -> None:
    """Hold the conversations, and do what operators do."""
    for topic, text, agent, _ in QUESTIONS:
        body = {"message": text, "channel": "web", "sender": "Ada", "conversation": topic}
        await call(page, "/api/message", body | ({"agent": agent} if agent else {}))
        await _answered(page)
    for token in TOKENS:
        await call(page, "/api/tokens", token)
    for timing, message, agent, zone in SCHEDULES:
        body = {"timing": timing, "message": message, "agent": agent, "zone": zone}
        made = await call(page, "/api/schedules", body)
        await call(page, f"/api/schedules/{made['id']}/run", {})
    await call(page, "/api/chatroom/desk", {"message": LINE})
    await _answered(page)
    await _read(page)
    [group, *_] = await call(page, "/api/dead/groups")
    await call(page, "/api/dead/groups/note", {"group": group["group"], "text": NOTE})


async def _answered(page: Page) -> None:
    """Wait until only the deployer has something to do: it waits for a person."""
    while any(one["agent"] != "deployer" for one in await call(page, "/api/queue/agents")):
        await page.wait_for_timeout(100)


async def _read(page: Page) -> None:
    for row in await call(page, "/api/conversations?channel=web&limit=50"):
        if not row["conversation"].endswith(UNREAD):
            path = f"/api/conversations/{row['conversation'].replace('/', '%2F')}"
            [newest] = await call(page, f"{path}/messages?limit=1")
            if newest["id"] is not None:
                await call(page, path, {"readTo": newest["id"]})


def age(database: str) -> None:
    """Move each conversation to its time. The server must not run."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for topic, _, _, ago in QUESTIONS:
            values = {"of": f"web:Ada/{topic}", "by": ago // timedelta(microseconds=1)}
            for statement in AGE:
                connection.execute(statement, values)
        connection.execute(
            "update chat_message set created_at = created_at - (10 - id) * 70 * 1000000"
        )
