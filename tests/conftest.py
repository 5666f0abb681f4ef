"""Every test may use the fixtures that plugin authors get."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["holdfast.testing.fixtures"]

ROOT = Path(__file__).parent

FURTHER_ENGINES = {
    "api": ("postgres15", "timescale"),
    "channels": ("postgres15", "timescale"),
    "contract/http": ("postgres15", "timescale"),
    "memory": ("timescale",),
    "routing": ("postgres15", "timescale"),
}
"""Engines on which only `make chaos` runs the tests of a folder above the store.

The suites of the store cover every PostgreSQL in `make test`."""


CHAOS_SECONDS = 3600
"""Time limit of a long fault run; every other test has the one in pyproject.toml."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("chaos") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CHAOS_SECONDS))
        if _is_on_further_engine(item):
            item.add_marker(pytest.mark.further_engine)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    """Replace lone surrogates in captured output.

    A worker could not send such a report, and the run would end."""
    outcome = yield
    report = outcome.get_result()
    report.sections = [
        (name, text.encode(errors="replace").decode()) for name, text in report.sections
    ]


def _is_on_further_engine(item: pytest.Item) -> bool:
    folder = item.path.parent.relative_to(ROOT).as_posix()
    called = getattr(item, "callspec", None)
    return called is not None and called.params.get("engine") in FURTHER_ENGINES.get(folder, ())
