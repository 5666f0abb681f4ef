"""Report a comparison: tables in Markdown, JSON and charts, and the results in the docs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from textwrap import fill
from typing import Any

from bench.peers import picture
from bench.peers.catalogue import PEERS, POSTGRES, SQLITE, Peer
from bench.peers.guarantees import PROBES, Finding
from bench.peers.measured import Measured
from bench.peers.processes import ENVIRONMENT
from bench.process import ROOT
from bench.report import number

BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
PRINT_VERSIONS = """
import sys
from importlib.metadata import version
print(*map(version, sys.argv[1:]))
"""
CHARTS = ("peers.svg", "peers-growth.svg", "peers-summary.svg")
SUMMARY = [
    (case, POSTGRES)
    for case in ("put by 8 tasks", "drain, default settings", "drain, best settings")
]
"""The cases of the chart in the README."""
TITLES = {POSTGRES: "PostgreSQL", SQLITE: "SQLite"}


@dataclass(slots=True)
class Report:
    """Results of a run, and the machine it ran on."""

    scale: str
    command: str
    engines: Sequence[str]
    peers: Sequence[Peer]
    measured: list[Measured] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    loads: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def note_case(self, name: str, seconds: float) -> None:
        """Keep how long a case took, and the machine's load at its end."""
        self.seconds[name] = seconds
        self.loads[name] = os.getloadavg()[0]

    def as_json(self) -> dict[str, Any]:
        return {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "scale": self.scale,
            "command": self.command,
            "machine": {
                "cpus": os.cpu_count(),
                "memory_gb": _memory(),
                "system": platform.platform(terse=True),
                "python": platform.python_version(),
                "engines": list(self.engines),
                "load_after_case": self.loads,
                "seconds_of_case": self.seconds,
            },
            "versions": versions(self.peers),
            "measured": [each.as_json() for each in self.measured],
            "guarantees": [each.as_json() for each in self.findings],
        }

    def save(self, folder: Path) -> list[Path]:
        """Save JSON, charts and the tables."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {
            "peers.json": json.dumps(self.as_json(), indent=2) + "\n",
            "peers.md": self.markdown(),
            **self._charts(),
        }
        paths = [folder / name for name, content in files.items() if content]
        for path in paths:
            path.write_text(files[path.name])
        return paths

    def _charts(self) -> dict[str, str]:
        summary = [each for each in self.measured if (each.case, each.store) in SUMMARY]
        return {
            "peers.svg": picture.bars(self.measured),
            "peers-growth.svg": picture.growth(self.measured),
            "peers-summary.svg": picture.bars(summary),
        }

    def publish(self, folder: Path) -> None:
        """Put the tables and charts of a saved run into the docs."""
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{self.markdown()}\n{END}{after}")
        for name in CHARTS:
            if (folder / name).exists():
                (IMAGES / name).write_text((folder / name).read_text())

    def markdown(self) -> str:
        """Return the machine, the tables of each store, the guarantees and the settings."""
        parts = [self._machine()]
        for store, title in TITLES.items():
            if table := _table([each for each in self.measured if each.store == store]):
                parts += [f"### {title}", table]
        if self.findings:
            parts += ["### Guarantees", _guarantees(self.findings, self.peers)]
        return "\n\n".join([*parts, "### Settings and versions", _settings(self.peers)]) + "\n"

    def _machine(self) -> str:
        load = f"{min(self.loads.values()):.1f} to {max(self.loads.values()):.1f}"
        minutes = sum(self.seconds.values()) / 60
        found = (
            f"Measured on {datetime.now(UTC):%Y-%m-%d} with `{self.command}`"
            f" (scale {self.scale}, {minutes:.0f} minutes): {os.cpu_count()} cores,"
            f" {_memory()} GB, {platform.platform(terse=True)}, Python {platform.python_version()},"
            f" {', '.join(self.engines)}. Load average after each case: {load}. Medians of the"
            " rounds; the highest rate and the least of any other figure are bold."
        )
        return fill(found, 100, break_long_words=False, break_on_hyphens=False)


def versions(peers: Iterable[Peer]) -> dict[str, str]:
    """Return the installed version of each peer."""
    packages = {peer.package for peer in peers if not peer.own and not peer.side.endswith(".cjs")}
    script = (
        "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    )
    python = str(ENVIRONMENT / "bin" / "python")
    words = [python, "-c", script, *sorted(packages)]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    own = {peer.package: version(peer.package) for peer in peers if peer.own}
    return own | dict(zip(sorted(packages), output.split(), strict=True)) | _node(peers)


def _node(peers: Iterable[Peer]) -> dict[str, str]:
    names = [peer.package for peer in peers if peer.side.endswith(".cjs")]
    manifests = {name: ENVIRONMENT / "node_modules" / name / "package.json" for name in names}
    return {name: json.loads(path.read_text())["version"] for name, path in manifests.items()}


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)


def _table(found: Sequence[Measured]) -> str:
    peers = list(dict.fromkeys(each.peer for each in found))
    lines = []
    for case in dict.fromkeys(each.case for each in found if len(each.series) < 2):
        group = {each.peer: each for each in found if each.case == case}
        cells = [_cell(group.get(peer), list(group.values())) for peer in peers]
        unit = next(iter(group.values())).unit
        lines.append([f"{case} ({unit})", *cells])
    for count in sorted({count for each in found for count in each.series}):
        rates = {each.peer: each.series[count] for each in found if count in each.series}
        shown = [f"{rates[peer]:,.0f}" if peer in rates else "" for peer in peers]
        lines.append([f"drain over {count:,} waiting (events/s)", *shown])
    return _grid(["case", *peers], lines) if lines else ""


def _cell(each: Measured | None, group: Sequence[Measured]) -> str:
    if each is None:
        return ""
    if each.value is None:
        return each.reason
    # The raw limit gives no guarantee, so it competes with nobody.
    values = [one.value for one in group if one.value is not None and one.peer != "raw SQL"]
    best = max(values) if each.unit.startswith("events") else min(values)
    shown = number(each.value, each.unit).removesuffix(each.unit).strip()
    return f"**{shown}**" if each.value == best and each.peer != "raw SQL" else shown


def _guarantees(findings: Sequence[Finding], peers: Sequence[Peer]) -> str:
    options = {(peer.name, peer.store): peer.options for peer in peers}
    by_peer: dict[tuple[str, str], Mapping[str, Finding]] = {}
    for each in findings:
        key = (each.peer, each.store)
        by_peer[key] = {**by_peer.get(key, {}), each.guarantee: each}
    lines = []
    for (name, store), own in by_peer.items():
        cells = [_holds(own[guarantee], guarantee in options[name, store]) for guarantee in PROBES]
        lines.append([f"{name} ({TITLES[store]})", *cells])
    return _grid(["", *PROBES], lines)


def _holds(finding: Finding, is_option: bool) -> str:
    answer = "yes" if finding.holds else "no"
    off = ", off in the timed runs" if is_option and finding.holds else ""
    return f"{answer}{off}: {finding.seen}"


def _settings(peers: Sequence[Peer]) -> str:
    known = versions(peers)
    lines = [
        [
            f"{peer.name} ({TITLES[peer.store]})",
            f"{peer.package} {known[peer.package]}",
            *(peer.settings.get(name, "") for name in ("put", "default", "best")),
        ]
        for peer in PEERS
        if peer in peers
    ]
    return _grid(["", "version", "put", "default settings", "best settings"], lines)


def _grid(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
