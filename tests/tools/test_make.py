"""Targets of the Makefile, with a script in place of pytest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTEST = """
echo "$@" >> "$0.calls"
case "$2" in {selected}) exit {status} ;; *) exit 5 ;; esac
"""


def make_chaos(folder: Path, selected: str, status: int = 0, args: str = "") -> tuple[int, int]:
    """Run `make chaos` where ARGS selects tests of one mark. Returns its status and the calls."""
    script = folder / "pytest"
    script.write_text(PYTEST.format(selected=selected, status=status))
    done = subprocess.run(
        ["make", "-o", ".venv/.dev", "chaos", f"PYTEST=sh {script}", f"ARGS={args}"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    return done.returncode, len((folder / "pytest.calls").read_text().splitlines())


@pytest.mark.parametrize("selected", ["chaos", "further"])
def test_make_chaos_succeeds_if_one_set_has_no_selected_test(tmp_path: Path, selected: str) -> None:
    assert make_chaos(tmp_path, selected) == (0, 2)


def test_make_chaos_fails_if_nothing_is_selected_or_a_test_fails(tmp_path: Path) -> None:
    assert make_chaos(tmp_path, "neither")[0] != 0
    assert make_chaos(tmp_path, "chaos", status=1)[0] != 0
    assert make_chaos(tmp_path, "further", status=1)[0] != 0


def test_make_chaos_runs_another_mark_once(tmp_path: Path) -> None:
    assert make_chaos(tmp_path, "chaos", args="-m long") == (0, 1)
