"""Metrics of a running harness, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import AgentHarness, Dead, Turn
from holdfast.agents.echo import echo
from holdfast.agents.transcript import transcript_of
from holdfast.api.server import serve_metrics
from holdfast.channels.watermark import Watermarks
from holdfast.memory.observation import Observation
from holdfast.queue.event import Event, NewEvent
from holdfast.queue.store import Filter
from holdfast.settings import Settings
from holdfast.store.memory import open_observations
from holdfast.telemetry import count_tokens
from holdfast.testing.databases import Databases
from tests.api.serving import ask, serving
from tests.steps import both_engines, until

API = frozenset({("channel", "api")})
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


class Recording:
    """A channel that takes everything."""

    name = "api"

    def __init__(self) -> None:
        self.sent: list[Event] = []

    async def run(self, _: Any) -> None:
        await asyncio.Event().wait()

    async def send(self, event: Event) -> None:
        self.sent.append(event)


@pytest.fixture
def app(database_url: str) -> AgentHarness:
    return AgentHarness(
        settings=Settings(database=database_url, retry_first=timedelta(0), retry_most=timedelta(0))
    )


async def scrape(port: int) -> Samples:
    status, body = await ask(port, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(body)
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples), "each set of labels stands once"
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((f"holdfast_{name}", frozenset(labels.items())), 0)


async def growth(port: int, before: Samples, name: str, by: float, **labels: str) -> None:
    """Returns once a number, which all tests of this process share, has grown by so much."""

    async def grown() -> bool:
        return value(await scrape(port), name, **labels) - value(before, name, **labels) >= by

    await until(grown)


@both_engines
async def test_an_answered_message_is_timed_from_receipt_to_claim_to_settle_to_delivery(
    app: AgentHarness,
) -> None:
    app.add("echo", echo)
    channel = Recording()
    app.add_channel(channel)
    async with serving(app) as port:
        before = await scrape(port)
        await app.put("hello")
        await until(lambda: channel.sent)
        await growth(port, before, "receipt_to_claim_seconds_count", 1, queue="inbox")
        await growth(port, before, "receipt_to_claim_seconds_count", 1, queue="outbox")
        ended = {"agent": "echo", "ended": "completed"}
        await growth(port, before, "claim_to_settle_seconds_count", 1, queue="inbox", **ended)
        await growth(port, before, "response_to_delivery_seconds_count", 1, channel="api")
        await growth(port, before, "store_call_seconds_count", 2, call="settle")


@both_engines
async def test_the_last_gap_of_a_channel_is_shown_with_its_length_and_what_it_brought(
    app: AgentHarness,
) -> None:
    app.add("echo", echo)
    app.add_channel(Recording())
    async with serving(app) as port:
        before = await scrape(port)
        gauges = ("last_gap_messages", "last_gap_seconds", "last_gap_closed_timestamp_seconds")
        assert not any((f"holdfast_{name}", API) in before for name in gauges)
        watermarks = Watermarks(app.store, "api")
        closed_at = await app.store.now()
        await watermarks.note_gap(5, closed_at - timedelta(hours=2))
        await watermarks.note_gap(3, closed_at - timedelta(minutes=1))
        after = await scrape(port)
    messages, seconds, closed = [value(after, name, channel="api") for name in gauges]
    assert messages == 3
    assert seconds == pytest.approx(60, abs=10)
    assert closed == pytest.approx(closed_at.timestamp(), abs=10)
    counted = [value(samples, "gap_messages_total", channel="api") for samples in (before, after)]
    assert counted[1] - counted[0] == 8


@both_engines
async def test_retries_and_failures_are_counted_by_agent_and_error(app: AgentHarness) -> None:
    @app.agent("picky")
    async def picky(turn: Turn) -> Dead:
        if turn.attempt == 1:
            raise LookupError("not yet")
        return Dead("never", "hopeless")

    async with serving(app) as port:
        before = await scrape(port)
        await app.put("hello")
        await growth(
            port,
            before,
            "retries_total",
            1,
            queue="inbox",
            agent="picky",
            error_class="LookupError",
        )
        await growth(
            port, before, "failures_total", 1, queue="inbox", agent="picky", error_class="hopeless"
        )


@both_engines
async def test_each_wake_up_has_a_reason(app: AgentHarness) -> None:
    app.add("echo", echo)
    async with serving(app) as port:
        before = await scrape(port)
        await app.put("hello")
        await growth(port, before, "wakes_total", 1, queue="inbox", reason="triggered")


@both_engines
async def test_slots_say_how_much_of_the_process_is_in_use(app: AgentHarness) -> None:
    finish = asyncio.Event()

    @app.agent("slow")
    async def slow(_: Turn) -> None:
        await finish.wait()

    async with serving(app) as port:
        for sender in ("a", "b"):
            await app.put("hello", sender=sender)

        async def two_are_busy() -> bool:
            return value(await scrape(port), "slots_busy", queue="inbox") == 2

        await until(two_are_busy)
        samples = await scrape(port)
        assert value(samples, "slots", queue="inbox") == 5
        assert value(samples, "events", queue="inbox", agent="slow", state="leased") == 2
        finish.set()


@both_engines
async def test_depth_and_age_are_read_when_asked_and_an_unnamed_event_is_its_default_agents(
    app: AgentHarness,
) -> None:
    app.add("echo", echo)
    async with serving(app, serve_metrics) as port:
        long_ago = await app.store.now() - timedelta(minutes=2)
        # Nobody here serves the queue, so what is put stays.
        await app.store.put(
            [
                NewEvent(event={}, queue="letters", target=target, vt=long_ago)
                for target in ("", "x")
            ]
        )
        samples = await scrape(port)
    assert value(samples, "events", queue="letters", agent="x", state="ready") == 1
    assert value(samples, "events", queue="letters", agent="", state="ready") == 1
    assert 120 <= value(samples, "oldest_ready_seconds", queue="letters") < 180


@both_engines
async def test_the_default_agent_is_one_whether_it_was_named_or_not(app: AgentHarness) -> None:
    finish = asyncio.Event()

    @app.agent("slow")
    async def slow(_: Turn) -> None:
        await finish.wait()

    async with serving(app) as port:
        await app.put("hello", sender="a")
        await app.put("hello", sender="b", agent="slow")

        async def both_are_leased() -> bool:
            return (
                value(await scrape(port), "events", queue="inbox", agent="slow", state="leased")
                == 2
            )

        await until(both_are_leased)
        finish.set()


@both_engines
async def test_a_lost_lease_is_counted(app: AgentHarness) -> None:
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @app.agent("slow", lease=timedelta(seconds=1))
    async def slow(turn: Turn) -> None:
        started.set_result(turn.primary.id)
        await asyncio.Event().wait()

    async with serving(app) as port:
        before = await scrape(port)
        await app.put("hello")
        assert await app.store.cancel(await started, "not wanted")
        await growth(port, before, "leases_lost_total", 1, queue="inbox")
        await growth(
            port,
            before,
            "claim_to_settle_seconds_count",
            1,
            queue="inbox",
            agent="slow",
            ended="lost",
        )


@both_engines
async def test_what_maintenance_ended_is_counted(app: AgentHarness) -> None:
    app.add("echo", echo)
    app.settings = app.settings and app.settings.model_copy(
        update={"sweep_every": timedelta(milliseconds=50)}
    )
    async with serving(app) as port:
        before = await scrape(port)
        longer = await app.store.now() - timedelta(days=2)
        await app.store.put([NewEvent(event={}, target="nobody", vt=longer)])
        await growth(port, before, "swept_total", 1, queue="inbox", what="expired")


async def test_a_held_snapshot_shows_its_age(databases: Databases) -> None:
    with databases.fresh("postgres") as url:
        async with serving(AgentHarness(echo, settings=Settings(database=url))) as port:
            async with await psycopg.AsyncConnection.connect(url) as backup:
                await backup.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
                await backup.execute("select from agent.event")
                await backup.execute("select pg_sleep(1)")
                held = value(await scrape(port), "oldest_snapshot_seconds")
            released = value(await scrape(port), "oldest_snapshot_seconds")
    assert held >= 1 > released


async def test_metrics_answer_while_the_database_does_not(databases: Databases) -> None:
    with databases.fresh("postgres") as url, psycopg.connect(url, autocommit=True) as admin:
        async with serving(AgentHarness(echo, settings=Settings(database=url))) as port:
            admin.execute("alter function agent.counts() rename to elsewhere")
            samples = await scrape(port)
            admin.execute("alter function agent.elsewhere() rename to counts")
            again = await scrape(port)
    assert value(samples, "store_up") == 0
    assert value(samples, "slots", queue="inbox") == 5
    assert value(samples, "store_errors_total", call="counts", error_class="HoldfastError") >= 1
    assert value(again, "store_up") == 1


@both_engines
async def test_the_lag_of_memory_and_its_oldest_change_are_seen(database_url: str) -> None:
    # No relay runs here, as if the index were unreachable.
    app = AgentHarness(echo, settings=Settings(database=database_url, memory=False))
    async with serving(app) as port:
        for number in range(2):
            await open_observations(app.store).save(
                Observation(
                    workspace_id="w",
                    subject_type="USER",
                    subject_id="ann",
                    id=str(number),
                    content="tea",
                )
            )
        samples = await scrape(port)
        for state in ("ready", "queued"):
            assert value(samples, "events", queue="memory", agent="", state=state) == 1
        assert ("holdfast_oldest_ready_seconds", frozenset({("queue", "memory")})) in samples
        assert value(samples, "oldest_pending_seconds", queue="memory") >= 0


@pytest.mark.parametrize("count", [10**400, -5, True, 1.5, "7", None])
async def test_issue_13_18_a_token_count_that_cannot_be_true_does_not_break_metrics(
    app: AgentHarness, count: Any
) -> None:
    async with serving(app) as port:
        before = await scrape(port)
        count_tokens("coder", "sly", {"input_tokens": count, "output_tokens": 3})
        after = await scrape(port)
    assert value(after, "tokens_total", agent="coder", model="sly", kind="input") == 0
    labels = {"agent": "coder", "model": "sly", "kind": "output"}
    assert value(after, "tokens_total", **labels) == value(before, "tokens_total", **labels) + 3


async def test_issue_13_18_a_command_that_reports_impossible_tokens_is_answered(
    app: AgentHarness,
) -> None:
    answer = {
        "type": "result",
        "result": "hello",
        "usage": {"input_tokens": 10**400, "output_tokens": -1},
    }
    transcript = transcript_of(json.dumps(answer))
    assert (transcript.text, transcript.usage) == ("hello", {})


async def test_issue_13_18_any_error_class_is_a_label_that_can_be_written(
    app: AgentHarness,
) -> None:
    classes: list[Any] = ["\ud800", 404, "x" * 10_000, "a\nb", "\x1b[0m", 'q"\\']

    async def answer(turn: Turn) -> Dead:
        return Dead("no", classes[int(turn.text)])

    app.add("coder", answer)
    async with serving(app) as port:
        for number in range(len(classes)):
            await app.put(str(number), sender=str(number))
        await until(lambda: _are_dead(app, len(classes)))
        samples = await scrape(port)
    labels = [dict(labels) for name, labels in samples if name == "holdfast_failures_total"]
    assert max(len(one["error_class"]) for one in labels) <= 100


async def test_issue_13_18_invented_channels_are_counted_together(app: AgentHarness) -> None:
    async with serving(app) as port:
        invented = [
            NewEvent(event={"kind": "response"}, queue="outbox", target=f"c{number}")
            for number in range(500)
        ]
        await app.store.put(invented)
        samples = await scrape(port)
    channels = {dict(labels)["agent"] for name, labels in samples if name == "holdfast_events"}
    assert len(channels) <= 102
    assert value(samples, "events", queue="outbox", agent="other", state="ready") >= 400


async def _are_dead(app: AgentHarness, count: int) -> bool:
    return len(await app.store.dead(Filter())) == count
