"""Draw the comparison as SVG: a group of bars for each case, and curves over the backlog."""

from __future__ import annotations

from collections.abc import Sequence

from bench.chart import COLOURS, PLOT, WIDTH, curves, line, picture, text
from bench.peers.measured import Measured
from bench.row import EVENTS, Row

LABELS = 260
BAR = 18
GAP = 46
OURS, OTHERS, LIMIT = COLOURS[1], COLOURS[0], "#aab3bd"


def bars(found: Sequence[Measured]) -> str:
    """Return one group of bars per case of events per second, each on its own scale."""
    cases = list(dict.fromkeys((each.case, each.store) for each in found if each.unit == EVENTS))
    parts, y = [], 16.0
    for case, store in cases:
        group = [each for each in found if (each.case, each.store) == (case, store)]
        parts += _group(f"{case} ({store})", group, y)
        y += GAP + BAR * len(group)
    return picture(parts, y)


def _group(title: str, group: Sequence[Measured], top: float) -> list[str]:
    most = max((each.value or 0 for each in group), default=0) or 1
    parts = [text(20, top + 16, f"{title}, events per second", "title")]
    for nth, each in enumerate(sorted(group, key=lambda each: -(each.value or 0))):
        y = top + 26 + nth * BAR
        value, length = each.value or 0, (WIDTH - LABELS - 120) * (each.value or 0) / most
        colour = {"Holdfast": OURS, "raw SQL": LIMIT}.get(each.peer, OTHERS)
        shown = f"{value:,.0f}" if each.samples else each.reason
        parts += [
            text(LABELS - 8, y + 12, each.peer, anchor="end"),
            f'<rect x="{LABELS}" y="{y + 1}" width="{length:.1f}" height="{BAR - 4}"'
            f' fill="{colour}"/>',
            text(LABELS + length + 6, y + 12, shown, "small"),
        ]
    return [*parts, line([(LABELS, top + 24), (LABELS, top + 26 + BAR * len(group))], "#999")]


def growth(found: Sequence[Measured]) -> str:
    """Return the curves of a growing backlog, empty if there are none."""
    rows = [
        Row(
            store=each.store,
            what=each.peer,
            measured=each.value or 0,
            against="itself",
            beside=1,
            series={count: rate for count, rate in each.series.items() if rate},
        )
        for each in found
        if len([rate for rate in each.series.values() if rate]) > 1
    ]
    return picture(curves("a worker", rows, 0), PLOT + 90) if rows else ""
