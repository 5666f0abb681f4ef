"""Every test may use the fixtures that plugin authors get."""

from __future__ import annotations

import gc
import os
import signal
import zlib
from collections.abc import Generator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.databases import ENGINES
from holdfast.testing.servers import scratch

pytest_plugins = ["holdfast.testing.fixtures"]

# Folders of tests lie where those of databases do: in memory if there is enough.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", scratch(durable=False))

ROOT = Path(__file__).parent

# A shell that starts the tests in the background ignores SIGINT, and commands would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Thousands of collected tests stay until the end. The garbage collector would look at each of them
# again and again, which takes a third of the time of the collection.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


FURTHER_ENGINES = {
    "agents": ("postgres15", "timescale"),
    "api": ("postgres15", "timescale"),
    "channels": ("postgres15", "timescale"),
    "conformance": ("postgres15",),
    "contract/http": ("postgres15", "timescale"),
    "memory": ("postgres15", "timescale"),
    "routing": ("postgres15", "timescale"),
}
"""Engines on which only `make chaos` runs the tests of a folder.

`make test` runs the suite of the stores on SQLite, PostgreSQL and TimescaleDB; SQL functions, plans
and migrations on PostgreSQL 15, too."""


SHARED = {
    ("sqlite", "postgres"): (
        "agents",
        "api",
        "browser",
        "channels",
        "cli",
        "consumers",
        "contract/channels",
        "contract/http",
        "crash",
        "memory",
        "process",
        "queue",
        "routing",
    ),
    ("postgres", "timescale"): ("conformance", "transfer"),
    ("postgres15", "timescale"): ("race", "store"),
}
"""Folders whose tests share two engines.

`make test` runs each of their tests on one of both, about half of them on each, and `make chaos` on
the other one, too. What is tested there hardly depends on the engine; for the stores themselves,
the engines are two servers with the same SQL."""

FIRST = (
    ("browser", "deploy", "packaging"),
    ("failover", "test_docs.py", "crash", "agents", "prove", "partition", "transfer"),
    ("channels", "contract/channels", "cli"),
    ("race", "process", "store", "simulation"),
)
"""Folders and files with long tests: one worker begins with each row, so that short tests are left
for the end, when workers share out what remains."""

CHAOS_SECONDS = 3600
"""Time limit of a long fault run; every other test has the one in pyproject.toml."""

INSTALL_SECONDS = 600
"""Time limit of a test that uses one of INSTALLED: the first one may have to install it."""

INSTALLED = {"synapse", "patroni", "bouncer"}
"""Fixtures of programs that are not in the lock."""


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    for item in items:
        if limit := _time_limit(item):
            item.add_marker(pytest.mark.timeout(limit))
    further = _on_further_engines(items)
    for item in further | _further_cases([item for item in items if item not in further]):
        item.add_marker(pytest.mark.further)
    yield
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = _in_shares(items, workers)


def _in_shares(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order items so that the share of each worker, an equal part of the list, begins with a row
    of FIRST."""
    rows: list[list[pytest.Item]] = [[] for _ in FIRST]
    others: list[pytest.Item] = []
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        row = next(
            (row for row, names in zip(rows, FIRST, strict=True) if path.startswith(names)), others
        )
        row.append(item)
    rest = iter(others)
    shares: list[pytest.Item] = []
    for worker in range(workers):
        size = (len(items) - len(shares)) // (workers - worker)
        first = [item for row in rows[worker::workers] for item in row]
        shares += [*first, *islice(rest, max(0, size - len(first)))]
    return [*shares, *rest]


def _time_limit(item: pytest.Item) -> int | None:
    """Return the seconds that a test may take, None for what the test or pyproject.toml says."""
    if item.get_closest_marker("timeout"):
        return None
    if item.get_closest_marker("chaos"):
        return CHAOS_SECONDS
    return INSTALL_SECONDS if INSTALLED & set(getattr(item, "fixturenames", ())) else None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    """Replace lone surrogates in captured output.

    A worker could not send such a report, and the run would end."""
    outcome = yield
    report = outcome.get_result()
    report.sections = [
        (name, text.encode(errors="replace").decode()) for name, text in report.sections
    ]


def _on_further_engines(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that only `make chaos` runs, for the engine that they run on."""
    further: set[pytest.Item] = set()
    shared: dict[tuple[str, tuple[str, ...]], dict[str, pytest.Item]] = {}
    for item in items:
        engine, path = _engine(item), item.path.relative_to(ROOT)
        if engine in FURTHER_ENGINES.get(path.parent.as_posix(), ()):
            further.add(item)
        elif item.get_closest_marker("each_engine"):
            continue
        elif engine in (engines := _shared_engines(path)):
            name = item.nodeid.replace(engine, engines[0])
            shared.setdefault((name, engines), {})[engine] = item
    for (name, engines), by_engine in shared.items():
        chosen = engines[zlib.crc32(name.encode()) % len(engines)]
        if any(_is_platform_only(item) for item in by_engine.values()):
            chosen = "sqlite"
        if chosen in by_engine:
            further.update(item for engine, item in by_engine.items() if engine != chosen)
    return further


def _further_cases(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the cases of sweeps that only `make chaos` runs."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sweep") and not item.get_closest_marker("chaos"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {item for sweep in cases.values() for nth, item in enumerate(sweep) if nth % _step(item)}


def _step(item: pytest.Item) -> int:
    marker = item.get_closest_marker("sweep")
    assert marker is not None
    return int(marker.args[0])


def _shared_engines(path: Path) -> tuple[str, ...]:
    return next((one for one, names in SHARED.items() if path.as_posix().startswith(names)), ())


def _is_platform_only(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "function", None), "is_platform_only", False))


def _engine(item: pytest.Item) -> str:
    called = getattr(item, "callspec", None)
    given = [] if called is None else called.params.values()
    return next((one for one in given if isinstance(one, str) and one in ENGINES), "")
