"""Spans and metrics as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from holdfast.telemetry.spans import Sampler
from holdfast.testing.databases import Databases

ROOT = Path(__file__).parents[2]
SCRIPT = """
import asyncio, os
from holdfast import AgentHarness
from holdfast.settings import Settings
from holdfast.queue.store import Filter
from holdfast.telemetry import redaction

app = AgentHarness(settings=Settings(database=os.environ["HOLDFAST_DATABASE"], trace_ratio=1))
delivered = asyncio.Event()

class Outside:
    name = "api"
    async def run(self, put):
        await asyncio.Event().wait()
    async def send(self, response):
        delivered.set()

@app.agent("coder")
async def coder(turn):
    await app.store.setting("routing")
    return "done"

@app.agent("broken", max_attempts=1)
async def broken(turn):
    raise LookupError("nothing for xoxb-secret here")

async def main():
    redaction.hide("xoxb-secret")
    app.add_channel(Outside())
    async with asyncio.TaskGroup() as group:
        await app.run(task_group=group)
        await app.put("what is xoxb-secret?", agent="coder")
        await app.put("hello", agent="broken")
        await delivered.wait()
        while not await app.store.dead(Filter()):
            await asyncio.sleep(0.01)
        app.stop()

asyncio.run(main())
"""

REAPING = """
import asyncio, itertools, os, sqlite3
from datetime import UTC, datetime
from pathlib import Path
from holdfast.migrations.runner import migrate
from holdfast.queue.store import Process
from holdfast.queue.sweeper import Sweeper
from holdfast.settings import Settings
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.watch import Watch
from holdfast.telemetry import startup

async def main():
    settings = Settings(database=os.environ["HOLDFAST_DATABASE"])
    startup.start(settings)
    path = Path(settings.database.removeprefix("sqlite:///"))
    migrate(settings.database)
    with sqlite3.connect(path) as shell:
        shell.execute("insert into process (id, host, started_at, seen_at) values ('gone','h',1,1)")
    seconds = itertools.count(step=60)
    async with SqliteStore(path, watch=Watch(monotonic=lambda: next(seconds))) as store:
        now, reaped = datetime.now(UTC), asyncio.Event()
        own = Process(id="own", host="here", started_at=now, seen_at=now)
        await store.register(own)
        sweeper = Sweeper(store, [], lambda: own, on_reaped=reaped.set)
        running = asyncio.ensure_future(sweeper.run())
        await reaped.wait()
        running.cancel()

asyncio.run(main())
"""


class Collector:
    """Collect the exports that arrive over HTTP."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []

    @contextmanager
    def listening(self) -> Iterator[str]:
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                is_packed = self.headers["content-encoding"] == "gzip"
                bodies.append((self.path, gzip.decompress(body) if is_packed else body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = Thread(target=server.serve_forever)
            thread.start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
            thread.join()

    def spans(self) -> list[Span]:
        requests = [
            ExportTraceServiceRequest.FromString(body)
            for path, body in self.bodies
            if path == "/v1/traces"
        ]
        resources = [resource for request in requests for resource in request.resource_spans]
        return [
            span for resource in resources for scope in resource.scope_spans for span in scope.spans
        ]

    def metrics(self) -> set[str]:
        requests = [
            ExportMetricsServiceRequest.FromString(body)
            for path, body in self.bodies
            if path == "/v1/metrics"
        ]
        resources = [resource for request in requests for resource in request.resource_metrics]
        return {
            metric.name
            for resource in resources
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Collector:
    """Return the exports of a run with one answered and one failed message."""
    return run_and_collect(f"sqlite:///{tmp_path_factory.mktemp('spans')}/holdfast.db")


def run_and_collect(database: str, script: str = SCRIPT) -> Collector:
    collector = Collector()
    with collector.listening() as url:
        environment = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "HOLDFAST_DATABASE": database,
        }
        subprocess.run(
            [sys.executable, "-c", script], env=environment, cwd=ROOT, check=True, timeout=60
        )
    return collector


def attributes(span: Span) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in span.attributes}


def turn(collector: Collector, queue: str, agent: str) -> Span:
    wanted = {"holdfast.queue": queue, "holdfast.agent": agent}
    [found] = [span for span in collector.spans() if wanted.items() <= attributes(span).items()]
    return found


def below(collector: Collector, parent: Span) -> dict[str, Span]:
    return {span.name: span for span in collector.spans() if span.parent_span_id == parent.span_id}


def test_the_span_of_a_turn_contains_claim_handler_and_settle(
    collector: Collector,
) -> None:
    coder = turn(collector, "inbox", "coder")
    parts = below(collector, coder)
    assert set(parts) == {"claim", "handle", "settle"}
    assert coder.start_time_unix_nano == parts["claim"].start_time_unix_nano
    assert parts["claim"].end_time_unix_nano <= parts["handle"].start_time_unix_nano
    assert (
        parts["handle"].end_time_unix_nano
        <= parts["settle"].end_time_unix_nano
        == coder.end_time_unix_nano
    )


def test_store_calls_of_a_handler_are_children_of_its_span(collector: Collector) -> None:
    handle = below(collector, turn(collector, "inbox", "coder"))["handle"]
    assert set(below(collector, handle)) == {"store.setting"}


def test_a_message_and_its_answer_are_one_trace(collector: Collector) -> None:
    message, answer = turn(collector, "inbox", "coder"), turn(collector, "outbox", "api")
    assert message.trace_id == answer.trace_id
    assert turn(collector, "inbox", "broken").trace_id != message.trace_id


def test_issue_14_15_receipt_wake_up_turn_and_delivery_are_one_trace(collector: Collector) -> None:
    message = turn(collector, "inbox", "coder")
    trace = {span.name: span for span in collector.spans() if span.trace_id == message.trace_id}
    assert {"receive", "store.put", "turn", "wake"} <= set(trace)
    assert trace["receive"].start_time_unix_nano <= message.start_time_unix_nano
    assert trace["store.put"].parent_span_id == trace["receive"].span_id
    assert (
        attributes(trace["receive"])["holdfast.message_id"]
        == attributes(message)["holdfast.message_id"]
    )
    assert attributes(message)["holdfast.wake_reason"] in ("start", "triggered", "due", "timeout")


def test_issue_14_15_sweeps_and_the_migration_have_spans(collector: Collector) -> None:
    names = {span.name: span for span in collector.spans()}
    assert {"sweep", "migrate"} <= set(names)
    sweep = next(span for span in collector.spans() if span.name == "sweep")
    assert "store.sweep" in below(collector, sweep)


def test_issue_14_15_reaping_a_dead_process_has_a_span(tmp_path: Path) -> None:
    collector = run_and_collect(f"sqlite:///{tmp_path}/holdfast.db", REAPING)
    [reap] = [span for span in collector.spans() if span.name == "reap"]
    assert attributes(reap)["holdfast.processes"] == "gone"
    assert reap.end_time_unix_nano > reap.start_time_unix_nano


def test_issue_14_15_spans_of_store_calls_name_the_sql_function(databases: Databases) -> None:
    with databases.fresh("postgres") as url:
        collector = run_and_collect(url)
    handle = below(collector, turn(collector, "inbox", "coder"))["handle"]
    named = attributes(below(collector, handle)["store.setting"])
    assert named["db.operation.name"] == "setting"
    assert named["db.query.summary"].startswith("agent.")


def test_events_that_follow_a_sampled_turn_are_sampled_too() -> None:
    sampler = Sampler(0, clock=lambda: 1.0)
    assert [sampler.takes(root) for root in (7, 8, 7)] == [True, False, True]


def test_a_span_contains_the_event_without_its_secrets(collector: Collector) -> None:
    assert "what is ***?" in attributes(turn(collector, "inbox", "coder"))["holdfast.event"]
    broken = attributes(turn(collector, "inbox", "broken"))
    assert broken["holdfast.ended"] == "dead"
    assert broken["holdfast.error"] == "LookupError: nothing for *** here"
    assert not any(b"xoxb-secret" in body for _, body in collector.bodies)


def test_metrics_are_exported_under_their_prometheus_names(collector: Collector) -> None:
    expected = {"holdfast_wakes_total", "holdfast_slots", "holdfast_claim_to_settle_seconds_count"}
    assert (
        expected | {"holdfast_claim_to_settle_seconds_bucket", "holdfast_store_up"}
        <= collector.metrics()
    )


def test_every_process_samples_the_same_share_of_roots() -> None:
    taken, by_another = (
        {root for root in range(10_000) if sampler.takes(root)}
        for sampler in (Sampler(0.1, clock=lambda: 1.5), Sampler(0.1, clock=lambda: 7.5))
    )
    assert 900 < len(taken) < 1100
    assert taken == by_another


def test_the_first_turn_of_a_second_is_sampled_whatever_the_ratio() -> None:
    moments = iter([1.1, 1.2, 1.9, 2.0, 2.1])
    sampler = Sampler(0, clock=lambda: next(moments))
    assert [sampler.takes(root) for root in range(1, 6)] == [True, False, False, True, False]


def test_an_unreachable_collector_delays_neither_the_work_nor_the_exit(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    environment = os.environ | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "HOLDFAST_DATABASE": f"sqlite:///{tmp_path}/holdfast.db",
    }
    script = SCRIPT + "import time; print(time.time())"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=ROOT, check=True, capture_output=True
    )
    assert time.time() - float(done.stdout) < 8
    assert 1 <= done.stderr.count(b"Failed to export") < 10


def test_log_lines_go_to_the_collector_too(collector: Collector) -> None:
    lines = [attributes(span) for span in collector.spans() if "event" in attributes(span)]
    [failed] = [line for line in lines if line["event"] == "a turn failed"]
    assert failed["error"] == "LookupError: nothing for *** here"
