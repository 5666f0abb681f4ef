"""Every test may use the fixtures that plugin authors get."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["holdfast.testing.fixtures"]

LEFT_OUT = {
    "api": ("postgres15",),
    "channels": ("postgres15",),
    "contract/http": ("postgres15",),
    "memory": ("timescale",),
    "routing": ("postgres15", "timescale"),
}
"""Engines of the tests above the store: its own suites already cover every PostgreSQL."""


CHAOS_SECONDS = 3600
"""Time limit of a long fault run; every other test has the one in pyproject.toml."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("chaos") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CHAOS_SECONDS))
    if os.environ.get("HOLDFAST_TEST_ENGINES") == "all":
        return
    left_out = [item for item in items if _is_left_out(item)]
    items[:] = [item for item in items if item not in set(left_out)]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    """Replace lone surrogates in captured output.

    A worker could not send such a report, and the run would end."""
    outcome = yield
    report = outcome.get_result()
    report.sections = [
        (name, text.encode(errors="replace").decode()) for name, text in report.sections
    ]


def _is_left_out(item: pytest.Item) -> bool:
    folder = Path(item.path).parent.relative_to(Path(__file__).parent).as_posix()
    called = getattr(item, "callspec", None)
    return called is not None and called.params.get("engine") in LEFT_OUT.get(folder, ())
