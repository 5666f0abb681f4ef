"""deploy/holdfast.service as systemd itself judges it; nothing is started."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import ROOT

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze"
)

MOST_EXPOSED = 2.0
MOST_EXPOSED_WITH_COMMANDS = 3.2
"""From 0, nothing left to close, to 10; a service without any hardening has 9.6."""


def unit(folder: Path, *drop_ins: str) -> Path:
    """The service with a program that is there, in a folder as systemd reads it."""
    text = (ROOT / "deploy" / "holdfast.service").read_text()
    path = folder / "holdfast.service"
    path.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={shutil.which('true')}", text))
    for name in drop_ins:
        # Appended, as systemd reads a drop-in after the unit itself.
        with path.open("a") as file:
            file.write((ROOT / "deploy" / name).read_text())
    return path


@pytest.mark.parametrize("drop_ins", [(), ("command-agents.conf",)])
def test_the_unit_has_no_faults(tmp_path: Path, drop_ins: tuple[str, ...]) -> None:
    judged = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit(tmp_path, *drop_ins)],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in judged.stderr.splitlines() if "holdfast" in line]
    assert (judged.returncode, complaints) == (0, [])


@pytest.mark.parametrize(
    ("drop_ins", "most"),
    [((), MOST_EXPOSED), (("command-agents.conf",), MOST_EXPOSED_WITH_COMMANDS)],
)
def test_the_unit_is_hardened(tmp_path: Path, drop_ins: tuple[str, ...], most: float) -> None:
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit(tmp_path, *drop_ins)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"exposure level for holdfast.service: ([0-9.]+)", judged.stdout)
    assert found, judged.stderr
    assert float(found[1]) <= most
