"""deploy/monitoring in Debian's Prometheus, which scrapes a real worker."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import psycopg
import pytest
import yaml  # type: ignore[import-untyped]

from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.cli.shell import ROOT, Shell, eventually

MONITORING = ROOT / "deploy" / "monitoring"
METRIC = re.compile(r"\b(?:holdfast|process)_[a-z_]+")
SUFFIX = re.compile(r"_(?:bucket|count|sum)\Z")
APP = """
from holdfast import AgentHarness, Dead, Retry
from datetime import timedelta

app = AgentHarness()

@app.agent("coder")
async def coder(turn):
    if turn.text == "doomed":
        return Dead("as asked")
    if turn.text == "again" and turn.attempt == 1:
        return Retry("once more", timedelta(0))
    return "done"
"""
NEED_A_FAULT = {
    # Queried only for the queue "memory", which stays empty here.
    "holdfast_oldest_pending_seconds",
    "holdfast_leases_lost_total",
    "holdfast_store_errors_total",
    "holdfast_loop_blocked_seconds_total",
    "holdfast_tokens_total",
    "holdfast_gap_messages_total",
    "holdfast_swept_total",
    "holdfast_response_to_delivery_seconds",
}
"""Metrics that a quiet worker without channels and language models does not have yet."""


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of prometheus and promtool; tests are skipped without them, and fail in CI."""
    tool = ROOT / "tools" / "prometheus"
    asked = subprocess.run([tool], capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        return Path(asked.stdout.strip().splitlines()[-1])
    if os.environ.get("CI") == "true":
        pytest.fail(f"no Prometheus: {asked.stderr.strip()}", pytrace=False)
    pytest.skip(f"no Prometheus: {asked.stderr.strip()}")


def queries() -> list[str]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert found
    return [query.replace("$job", "holdfast") for query in found]


def alerts() -> list[str]:
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_the_alert_rules_are_valid_and_fire_when_they_should(programs: Path) -> None:
    promtool = str(programs / "promtool")
    for command in (("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")):
        done = subprocess.run([promtool, *command], cwd=MONITORING, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    config = [promtool, "check", "config", "--syntax-only", "prometheus.yaml"]
    subprocess.run(config, cwd=MONITORING, check=True, capture_output=True)


def test_every_metric_of_the_queries_is_documented() -> None:
    documented = (ROOT / "docs" / "reference" / "telemetry.md").read_text()
    adapter = (MONITORING / "adapter.yaml").read_text()
    scaler = (ROOT / "deploy" / "kubernetes" / "autoscaler.yaml").read_text()
    for text in (*queries(), *alerts(), adapter, scaler):
        for metric in METRIC.findall(text):
            known = f"`{SUFFIX.sub('', metric)}`"
            assert known in documented or metric.startswith("process_"), metric


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.fixture
def worker(databases: Databases, tmp_path: Path) -> Iterator[tuple[Shell, int]]:
    """A worker on PostgreSQL that has answered, retried and buried messages, and its port."""
    with (
        available("postgres", databases.fresh("postgres")) as url,
        psycopg.connect(url) as snapshot,
    ):
        # Keep a snapshot open: its age is a metric.
        snapshot.execute("select pg_current_xact_id()")
        shell = Shell(tmp_path, url)
        shell.write("fleet.py", APP)
        port = free_port()
        with shell.running("work", "--app", "fleet:app", "--metrics-port", str(port)):
            for text in ("hello", "again", "doomed"):
                shell.out("send", text)
            eventually(lambda: len(shell.json("history", "--queue", "inbox")) == 3)
            yield shell, port


@pytest.fixture
def prometheus(programs: Path, worker: tuple[Shell, int], tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus with our settings, which has scraped the worker."""
    shell, port = worker
    folder = tmp_path / "prometheus"
    folder.mkdir()
    token = shell.out("token", "create", "--name", "prometheus", "--role", "read").split()[-1]
    (folder / "token").write_text(token)
    shutil.copy(MONITORING / "alerts.yaml", folder)
    settings = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    [scraped] = settings["scrape_configs"]
    scraped["authorization"]["credentials_file"] = str(folder / "token")
    scraped["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    own = free_port()
    command = [
        str(programs / "prometheus"),
        f"--config.file={folder}/prometheus.yaml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        address = f"http://127.0.0.1:{own}"
        try:
            # Rates need two samples.
            eventually(lambda: _samples(address) >= 3)
            yield address
        finally:
            process.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def ask(address: str, query: str) -> list[Any]:
    """Return the result of a query; an invalid one is an HTTP error."""
    with urlopen(f"{address}/api/v1/query?{urlencode({'query': query})}", timeout=30) as answer:
        found = json.load(answer)
    assert found["status"] == "success", found
    result: list[Any] = found["data"]["result"]
    return result


def _samples(address: str) -> int:
    try:
        found = ask(address, "count_over_time(holdfast_store_up[1m])")
    except OSError:
        return 0
    return int(found[0]["value"][1]) if found else 0


@pytest.mark.chaos
def test_prometheus_answers_every_query_about_a_real_worker(
    prometheus: str, worker: tuple[Shell, int]
) -> None:
    for query in queries():
        found = ask(prometheus, query)
        needs = {SUFFIX.sub("", name) for name in METRIC.findall(query)}
        assert found or needs <= NEED_A_FAULT, f"no data for {query}"
    for expression in alerts():
        ask(prometheus, expression)
    with urlopen(f"{prometheus}/api/v1/rules", timeout=30) as answer:
        [group] = json.load(answer)["data"]["groups"]
    assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
    [rule] = yaml.safe_load((MONITORING / "adapter.yaml").read_text())["externalRules"]
    scaling = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'queue="inbox"')
    assert ask(prometheus, scaling), "an empty queue must scale down, too"
    [buried] = ask(prometheus, "sum(holdfast_failures_total)")
    assert buried["value"][1] == "1"
