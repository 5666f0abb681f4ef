"""Report a run: print the table, save JSON and the chart."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from bench.chart import chart
from bench.row import EVENTS, Row

DECIMALS = {"ms": 1, "ms/s": 1, "s": 2, "1/s": 1}
RESULT_LABELS = {True: "[green]pass[/green]", False: "[red]FAIL[/red]", None: ""}


def table(rows: Sequence[Row]) -> Table:
    """Return the table, one line per row; rates are medians."""
    result = Table(
        title="Holdfast beside the raw engine, medians of interleaved rounds", title_justify="left"
    )
    for name in ("store", "measurement", "compared with"):
        result.add_column(name, overflow="fold")
    for name in ("measured", "baseline", "ratio", "required", "aim", ""):
        result.add_column(name, justify="right", no_wrap=True)
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and before.store != row.store:
            result.add_section()
        result.add_row(*_cells(row))
    return result


def _cells(row: Row) -> list[str]:
    goal = row.goal
    sign = "≤ " if goal and goal.at_most else ""
    return [
        row.store,
        row.what + _between(row),
        row.against,
        number(row.measured, row.unit),
        number(row.beside, row.unit),
        f"{row.ratio:.2f}",
        f"{sign}{goal.required:.2f}" if goal and goal.required else "",
        f"{goal.aim:.2f}" if goal and goal.aim else "",
        RESULT_LABELS[row.passed],
    ]


def _between(row: Row) -> str:
    """Return the rates at the backlogs between the smallest and the largest."""
    between = sorted(row.series.items())[1:-1]
    return "".join(f"\n[dim]{count:,}: {number(rate, '')}[/dim]" for count, rate in between)


def number(value: float, unit: str) -> str:
    text = f"{value:,.{DECIMALS.get(unit, 0)}f}"
    return f"{text} {unit}" if unit not in ("", EVENTS) else text


def save(folder: Path, rows: Sequence[Row], scale: str, versions: Sequence[str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    run = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "scale": scale,
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "engines": list(versions),
        },
        "rows": [row.as_json() for row in rows],
    }
    data, picture = folder / "bench.json", folder / "bench.svg"
    data.write_text(json.dumps(run, indent=2) + "\n")
    picture.write_text(chart(rows))
    return [data, picture]
