"""Draw the chart as SVG: ratios as bars with their goals, rates over the backlog as lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench.row import Row

WIDTH = 1200
LABELS = 640
LINE = 26
TOP = 60
LONGEST = 10.0
PLOT = 300
COLOURS = ("#2f6f9f", "#d1702f", "#4d8f4d", "#a04d8f", "#8a7a2f", "#555f77")
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#222}"
    ".small{font-size:11px;fill:#666}.title{font-size:16px}"
)


def chart(rows: Sequence[Row]) -> str:
    grown = [row for row in rows if len(row.series) > 1]
    stores = sorted({row.store for row in grown})
    bars = TOP + LINE * len(rows) + 30
    height = bars + len(stores) * (PLOT + 90)
    parts = _bars(rows)
    for nth, store in enumerate(stores):
        parts += curves(
            store, [row for row in grown if row.store == store], bars + nth * (PLOT + 90)
        )
    return picture(parts, height)


def picture(parts: Sequence[str], height: float) -> str:
    """Return the SVG of some parts on a white ground."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _bars(rows: Sequence[Row]) -> list[str]:
    most = max((value for row in rows for value in (row.ratio, *_marks(row))), default=1.0)
    unit = (WIDTH - LABELS - 80) / math.sqrt(min(most, LONGEST))
    parts = [
        text(20, 28, "ratio to what stands beside it (square-root scale)", "title"),
        text(20, 46, f"black: required, grey: aimed for; a bar ends at {LONGEST:g}", "small"),
    ]
    for nth, row in enumerate(rows):
        parts += _bar(row, TOP + nth * LINE, unit)
    return parts


def _bar(row: Row, y: float, unit: float) -> list[str]:
    # Ratios are between 0.3 and 10; the square root keeps the small ones visible.
    width = unit * math.sqrt(min(row.ratio, LONGEST))
    colour = (
        "#c0392b" if row.passed is False else COLOURS[0] if row.store == "postgres" else COLOURS[2]
    )
    parts = [
        text(LABELS - 8, y + 15, f"{row.store}: {row.what} / {row.against}", anchor="end"),
        f'<rect x="{LABELS}" y="{y + 3}" width="{width:.1f}" height="{LINE - 10}"'
        f' fill="{colour}"/>',
        text(WIDTH - 20, y + 15, f"{row.ratio:.2f}", anchor="end"),
    ]
    for mark, shade in zip(_marks(row), ("black", "#999"), strict=False):
        x = LABELS + unit * math.sqrt(mark)
        parts.append(line([(x, y), (x, y + LINE - 4)], shade))
    return parts


def _marks(row: Row) -> list[float]:
    return [mark for mark in (row.goal.required, row.goal.aim) if mark] if row.goal else []


def curves(title: str, rows: Sequence[Row], top: float) -> list[str]:
    counts = sorted({count for row in rows for count in row.series})
    most = max(rate for row in rows for rate in row.series.values())
    least = min(rate for row in rows for rate in row.series.values())
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))

    def point(count: int, rate: float) -> tuple[float, float]:
        x = 80 + 480 * math.log(count / counts[0]) / math.log(counts[-1] / counts[0])
        return x, top + 40 + PLOT * (high - math.log10(rate)) / max(high - low, 1)

    parts = [text(20, top + 20, f"{title}: events per second over the backlog", "title")]
    for power in range(low, high + 1):
        (x, y), (end, _) = point(counts[0], 10**power), point(counts[-1], 10**power)
        parts += [
            line([(x, y), (end, y)], "#ddd"),
            text(x - 8, y + 4, f"{10**power:,}", "small", "end"),
        ]
    for count in counts:
        parts.append(text(point(count, 1)[0], top + PLOT + 60, f"{count:,}", "small", "middle"))
    for nth, row in enumerate(rows):
        parts += _curve(row, [point(*pair) for pair in sorted(row.series.items())], nth, top)
    return parts


def _curve(row: Row, points: Sequence[tuple[float, float]], nth: int, top: float) -> list[str]:
    colour, dash = COLOURS[nth % len(COLOURS)], ("", "7 4", "2 3")[nth // len(COLOURS) % 3]
    y = top + 50 + nth * 20
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    key = [line([(610, y), (650, y)], colour, 2, dash), text(660, y + 4, row.what)]
    return [line(points, colour, 2, dash), *dots, *key]


def line(
    points: Sequence[tuple[float, float]], colour: str, width: float = 1.5, dash: str = ""
) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"'
        f' stroke-dasharray="{dash}"/>'
    )


def text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
    )
