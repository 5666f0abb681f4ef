"""A week of history for the pictures, as a small company would have it.

Generated rows get texts, senders and errors that people would write, and a rhythm of day and
night. Everything depends on the number of a row alone, so that two runs look alike."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.memory.observation import Observation, ObservationType
from holdfast.store import open_store
from holdfast.store.memory import open_observations
from holdfast.store.pairing import open_pairings, request_pairing
from holdfast.testing.history import EPOCH, GeneratedHistory, fill_history

AGENTS = {"coder": "guide", "writer": "planner", "reviewer": "reviewer", "helper": "deployer"}
SENDERS = ("Ada", "Grace", "Mira", "Tomás", "Yuki", "Noor", "Ines", "Kofi", "Lena", "Ravi")
TEXTS = (
    "Which services still read the old column?",
    "Summarise the thread about the Lisbon office",
    "Is the nightly backup of the billing database green?",
    "Draft an answer to the customer in ticket 4182",
    "What changed between 0.7.3 and 0.7.4?",
    "Who is on call this weekend?",
    "Translate the outage notice into Portuguese",
    "Why did the build of the mobile app take 40 minutes?",
    "List the invoices that are older than 60 days",
    "Review the pull request about retries",
    "How many people signed up yesterday?",
    "Prepare the agenda for Thursday",
    "Which alerts fired more than twice last night?",
    "Explain this stack trace, please",
    "Rewrite the first paragraph of the release notes",
    "Book the staging cluster for two hours",
)
# The class, the text and the agent of an error.
ERRORS = (
    ("ModelHTTPError", "status_code: 529, body: the model is overloaded", "guide"),
    ("TimeoutError", "the search index did not answer within 30 s", "planner"),
    ("PermissionError", "git push was rejected: main is protected", "deployer"),
    ("ValueError", "the invoice has no currency", "reviewer"),
)
TRACEBACK = """Traceback (most recent call last):
  File "app/agents.py", line 118, in {agent}
    answer = await turn.step("{step}", call, turn.text)
  File "app/tools.py", line 41, in call
    response.raise_for_status()
{error}: {text}
"""
DEAD_EVERY = 40
"""One of this many generated dead letters stays a dead letter."""

# The person, the fact, how it was learned, and the message that it was learned from.
OBSERVATIONS = (
    (
        "slack:id:Ada",
        "Drinks green tea, no coffee after noon",
        ObservationType.EXPLICIT,
        "Tea for me, please, green. Coffee after noon keeps me awake.",
    ),
    (
        "slack:id:Ada",
        "Works on the payment gateway, on call every third week",
        ObservationType.EXPLICIT,
        "I am on call for the payment gateway again, it is my third week",
    ),
    (
        "slack:id:Ada",
        "Prefers short answers with a link",
        ObservationType.INDUCTIVE,
        "Too long. One sentence and the link, please",
    ),
    (
        "web:id:Grace",
        "Writes compilers",
        ObservationType.EXPLICIT,
        "My compiler emits this loop twice, can you see why?",
    ),
    (
        "email:id:mira@example.org",
        "Signs off releases on Thursdays",
        ObservationType.EXPLICIT,
        "Send it on Wednesday: I sign off releases on Thursdays",
    ),
    (
        "slack:id:Tomás",
        "Reads answers on a phone",
        ObservationType.ABDUCTIVE,
        "The table is cut off on my screen, can you send it as a list?",
    ),
)


def fill(url: str) -> None:
    """Write a week of history, with a busy last hour. The server must not run yet.

    The hour ends two minutes from now, since pictures are taken later."""
    now, hour = datetime.now(UTC), timedelta(hours=1)
    week = GeneratedHistory(rows=60_000, until=now - hour, over=timedelta(days=7))
    fill_history(url, week)
    end = now + timedelta(minutes=2)
    fill_history(url, GeneratedHistory(rows=900, until=end, over=end - week.until, with_keys=False))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        _rewrite(connection, (week.until - EPOCH) // timedelta(microseconds=1))
    asyncio.run(_remember(url))


def _rewrite(connection: sqlite3.Connection, recent: int) -> None:
    rows = connection.execute(
        "select id, queue, target, event, outcome, created_at from event_hist"
    ).fetchall()
    quiet = [(id_,) for id_, *_, at in rows if _is_quiet(id_, at)]
    connection.executemany(
        "update event_hist set target = :target, event = :event, lane = :lane, outcome = :outcome,"
        " last_error = :error, error_class = :class, traceback = :traceback,"
        " finished_at = :finished where id = :id",
        [_row(row[-1] > recent, *row) for row in rows],
    )
    connection.executemany("delete from event_hist where id = ?", quiet)
    connection.execute("delete from message_key where event_id not in (select id from event_hist)")


def _is_quiet(id_: int, created_at: int) -> bool:
    """Whether a message and its response are left out: fewer come at night and between peaks."""
    seconds, message = created_at / 1e6, (id_ + 1) // 2
    day = math.sin((seconds / 86400 - 0.35) * 2 * math.pi)
    minutes = math.sin(seconds / 480) * 0.7 + math.sin(seconds / 190) * 0.3
    return message * 7919 % 100 > 58 + 20 * day + 22 * minutes


def _row(
    is_recent: bool, id_: int, queue: str, target: str, event: str, outcome: str, created: int
) -> dict[str, Any]:
    number, payload = (id_ + 1) // 2, json.loads(event)
    agent = AGENTS[payload["agent"]]
    is_over = created < (time.time() - 300) * 1e6
    is_dead = outcome == "dead" and (is_recent or number // 50 % DEAD_EVERY == 0) and is_over
    kind, text, owner = ERRORS[number // 50 // (1 if is_recent else DEAD_EVERY) % len(ERRORS)]
    agent = owner if is_dead else agent
    payload |= {
        "agent": agent,
        "sender": SENDERS[number // 7 % len(SENDERS)],
        "message": TEXTS[number // 3 * 5 % len(TEXTS)],
    }
    conversation = f"{payload['channel']}:{payload['sender']}"
    payload["conversation"] = conversation
    slow = 1.4 + math.sin(created / 1e6 / 700) * 0.4
    took = int((1_800 + number * 7919 % 1_500 + (number * 31 % 13) ** 3) * slow) * 1000
    trace = TRACEBACK.format(agent=agent, step="ask the model", error=kind, text=text)
    return {
        "id": id_,
        "target": agent if queue == "inbox" else target,
        "event": json.dumps(payload),
        "lane": f"{agent}/{conversation}" if queue == "inbox" else None,
        "outcome": "dead" if is_dead else "completed",
        "error": f"{kind}: {text}" if is_dead else None,
        "class": kind if is_dead else None,
        "traceback": trace if is_dead else None,
        "finished": created + took,
    }


async def _remember(url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        observations = list(_observations(connection))
    async with open_store(url) as store:
        for observation in observations:
            await open_observations(store).save(observation)
        await request_pairing(open_pairings(store), "telegram", "4711", "Zoë")


def _observations(connection: sqlite3.Connection) -> Iterator[Observation]:
    """Build the observations, and write the texts they come from into messages of the week."""
    messages = connection.execute(
        "select id, message_id from event_hist where queue = 'inbox' and outcome = 'completed'"
        " and id in (select event_id from message_key) order by id desc limit ?",
        [len(OBSERVATIONS)],
    ).fetchall()
    for (id_, message_id), (subject, content, kind, source) in zip(
        messages, OBSERVATIONS, strict=True
    ):
        channel, _, sender = subject.split(":")
        connection.execute(
            "update event_hist set event = json_set(event, '$.message', ?, '$.sender', ?,"
            " '$.channel', ?) where id = ?",
            [source, sender, channel, id_],
        )
        yield Observation(
            workspace_id="default",
            subject_type="USER",
            subject_id=subject,
            content=content,
            type=kind,
            observer="guide",
            source_message_ids=(message_id,),
        )
