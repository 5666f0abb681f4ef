"""The comparison with other queues: its report, and in `make chaos` a small run of all of it."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from bench.mention import PAYLOAD
from bench.peers import drains, picture, processes, puts
from bench.peers.__main__ import main
from bench.peers.catalogue import PEERS, Peer
from bench.peers.guarantees import PROBES, Finding
from bench.peers.measured import SIZES, Measured, measured, missing
from bench.peers.report import CHARTS, Report
from bench.peers.side import handler
from bench.peers.side.event import numbered
from holdfast.testing.databases import Databases

OURS = [peer for peer in PEERS if peer.own]
RAW, HOLDFAST, SQLITE = OURS


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    """A report of made-up values."""
    report = Report("small", "make bench-peers", ["PostgreSQL 18"], OURS)
    report.measured += [
        measured("put one by one", RAW, [900.0]),
        measured("put one by one", HOLDFAST, [700.0, 800.0, 600.0]),
        measured("kill -9", HOLDFAST, [4.0], "s"),
        missing("kill -9", RAW, "not within 5 s"),
        Measured(
            case="growth",
            peer="Holdfast",
            store=HOLDFAST.store,
            samples=[20.0],
            series={1_000: 30.0, 10_000: 20.0},
        ),
    ]
    report.findings += [
        Finding(peer=HOLDFAST.name, store=HOLDFAST.store, guarantee=name, holds=True, seen="kept")
        for name in PROBES
    ]
    report.note_case("puts", 60.0)
    monkeypatch.setattr(
        "bench.peers.report.versions", lambda peers: {p.package: "1" for p in peers}
    )
    return report


def test_the_tables_show_medians_reasons_and_guarantees(report: Report) -> None:
    text = report.markdown()
    assert "| put one by one (events/s) | 900 | **700** |" in text
    assert "| kill -9 (s) | not within 5 s | **4.0** |" in text or "**4.00**" in text
    assert "| drain over 10,000 waiting (events/s) |  | 20 |" in text
    assert "yes: kept" in text
    assert "Load average after each case" in " ".join(text.split())


def test_a_run_is_saved_as_json_and_charts(report: Report, tmp_path: Path) -> None:
    saved = {path.name for path in report.save(tmp_path)}
    assert saved == {"peers.json", "peers.md", *CHARTS}
    run = json.loads((tmp_path / "peers.json").read_text())
    assert run["machine"]["load_after_case"].keys() == {"puts"}
    assert run["measured"][1]["value"] == 700.0


def test_bars_show_the_reason_where_a_value_is_missing() -> None:
    drawing = picture.bars([missing("drain", HOLDFAST, "not done in 120 s")])
    assert "not done in 120 s" in drawing


def test_lanes_are_scattered_over_2000_channels() -> None:
    lanes = [numbered(number).lane for number in range(1, 2_001)]
    assert len({lane.split(":")[0] for lane in lanes}) == 2_000


def test_the_handler_refuses_what_is_not_a_mention() -> None:
    with pytest.raises(AssertionError):
        asyncio.run(handler.handle(PAYLOAD | {"type": "message"}))


def test_a_later_attempt_of_a_probe_is_counted(tmp_path: Path) -> None:
    orders = {"journal": str(tmp_path / "journal"), "name": "one", "does": "fails first"}
    with pytest.raises(RuntimeError):
        asyncio.run(handler.handle(PAYLOAD | orders))
    asyncio.run(handler.handle(PAYLOAD | orders))
    notes = handler.read(tmp_path / "journal")
    assert [(note["what"], note["attempt"]) for note in notes] == [
        ("begin", 1),
        ("begin", 2),
        ("end", 2),
    ]


@pytest.mark.parametrize("peer", [HOLDFAST, SQLITE], ids=lambda peer: str(peer.store))
def test_holdfast_drains_what_a_client_put(peer: Peer, tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    with closing(Databases()) as databases, processes.database(databases, peer) as url:
        with processes.client(peer, url) as putter:
            assert putter.put(1, 100, tasks=4, batch=5) > 0
        assert processes.is_pending(peer, url)
        with processes.worker(peer, url, "best", progress):
            assert processes.wait_until(lambda: not processes.is_pending(peer, url), 30)
    assert drains.handled(progress) == 1


@pytest.mark.chaos
@pytest.mark.timeout(1_200)
def test_all_peers_run_at_a_small_scale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not processes.is_installed():
        assert not os.environ.get("CI"), "`make bench-peers` installs the peers"
        pytest.skip("`make bench-peers` installs the peers")
    monkeypatch.setattr("bench.peers.__main__.FOLDER", tmp_path)
    assert main(["--scale", "small"]) == 0
    run = json.loads((tmp_path / "peers.json").read_text())
    rates = [each for each in run["measured"] if each["case"].startswith("put")]
    assert {each["peer"] for each in rates} == {peer.name for peer in PEERS}
    ours = [each for each in run["guarantees"] if each["peer"] == "Holdfast"]
    assert len(ours) == 2 * len(PROBES)
    assert all(each["holds"] for each in ours), ours


def test_every_scale_grows() -> None:
    small, medium, full = SIZES.values()
    assert small.drained < medium.drained < full.drained
    assert puts.TASKS * puts.PROCESSES == 64
