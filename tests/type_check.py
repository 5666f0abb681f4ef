"""Run mypy on files outside of this repository, as a user of the package does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def check_types(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the files of a folder as strictly as our own.

    Only the installed package leads to ours: neither a path nor a folder does. With the settings of
    `make check`, its cache counts; a cache of its own would take most of a minute to fill."""
    ours = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *ours, "."],
        cwd=folder,
        env=environment_of_another_project(),
        capture_output=True,
        text=True,
        timeout=150,
    )


def environment_of_another_project() -> dict[str, str]:
    """Return our environment without the variables that lead to modules."""
    return {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")
    }
