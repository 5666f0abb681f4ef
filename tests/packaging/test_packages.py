"""The distribution: a wheel and a source archive that a new user can install and run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.lock import pins
from tools.manpage import manual

ROOT = Path(__file__).parents[2]
READY_WITHIN = 60
BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]  # setuptools changes the arguments
build_meta.build_sdist(folder)
build_meta.build_wheel(folder)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel, built from a copy of the project."""
    folder = tmp_path_factory.mktemp("packages")
    source = folder / "source"
    skipped = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "images")
    shutil.copytree(ROOT, source, ignore=skipped)
    subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=source, check=True, capture_output=True
    )
    shutil.rmtree(source)
    return folder


@pytest.fixture(scope="module")
def installed(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new virtual environment with the wheel and the pinned core, no extras."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "--quiet"]
    install = [*pip, "install", "--disable-pip-version-check", "--no-deps", "--no-compile"]
    core = str(ROOT / "requirements-core.txt")
    [wheel] = packages.glob("*.whl")
    for what in (["--require-hashes", "-r", core], [str(wheel)]):
        subprocess.run([*install, *what], check=True, capture_output=True)
    subprocess.run([*pip, "check"], check=True, capture_output=True)
    return folder / "bin"


def files_of_the_package() -> set[str]:
    found = subprocess.run(
        ["git", "ls-files", "holdfast"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    return set(found.splitlines())


def test_the_wheel_and_the_source_archive_have_every_file_of_the_package(packages: Path) -> None:
    [wheel], [archive] = packages.glob("*.whl"), packages.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened, tarfile.open(archive) as unpacked:
        in_wheel = set(opened.namelist())
        in_archive = {name.partition("/")[2] for name in unpacked.getnames()}
    expected = files_of_the_package()
    assert "holdfast/py.typed" in expected
    assert expected - in_wheel == set()
    assert expected - in_archive == set()
    assert any(name.endswith("share/man/man1/holdfast.1") for name in in_wheel)


@pytest.fixture
def server(installed: Path, tmp_path: Path) -> Iterator[tuple[dict[str, str], float]]:
    """`holdfast up` of the installed core: its environment, and its time to ready in seconds."""
    environment = {"PATH": f"{installed}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    began_at = time.monotonic()
    process = subprocess.Popen(
        ["holdfast", "up", "--port", "0"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    yield environment, time.monotonic() - began_at
    process.terminate()
    process.stdout.close()
    assert process.wait(READY_WITHIN) == 0


def test_the_core_without_extras_starts_and_answers(
    server: tuple[dict[str, str], float], tmp_path: Path
) -> None:
    environment, took = server
    assert took < READY_WITHIN
    answer = subprocess.run(
        ["holdfast", "send", "hello", "--wait"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "you said hello\n"
    checks = subprocess.run(
        ["holdfast", "doctor", "--json"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(checks.stdout)
    demo = subprocess.run(
        ["holdfast", "demo", "slack"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (demo.returncode, demo.stderr.count("\n")) == (1, 1)
    assert "pip install 'holdfast-agents[slack]'" in demo.stderr


def test_the_manual_page_is_that_of_the_commands() -> None:
    assert (ROOT / "docs/man/holdfast.1").read_text() == manual(), "run `make fix`"


def test_the_core_lock_has_the_versions_of_the_whole_lock() -> None:
    core, whole = (
        {pin.name: pin.version for pin in pins(ROOT / f"{name}.txt")}
        for name in ("requirements-core", "requirements")
    )
    assert core.items() <= whole.items()
    assert len(core) < len(whole) / 2
