"""Put one-line faults into a copy of the source, one at a time, and print which test fails."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).with_name("faults.toml")
COPIED = ("holdfast", "tests", "tools", "examples", "pyproject.toml")
SOUND = "sound"
SECONDS = 600
ENGINES = {"postgres": "postgres and not postgres15", "sqlite": "sqlite", "none": ""}
"""Tests to run for a fault, by the engine it concerns; those of programs need no database."""
MARKS = "not chaos and not long"
"""Tests that `make test` leaves to `make chaos` on one engine may notice a fault on the other."""
ANY_TEST = ("tests/conformance", "tests/contract", "tests/store", "tests/race")
FAILED = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)
REASON = re.compile(r"^E +(.*)", re.MULTILINE)


class Unfit(Exception):
    """The list of faults does not fit the source, or the tests fail without any fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One line of the source, its replacement, and the tests that should notice."""

    name: str
    engine: str
    file: str
    old: str
    new: str
    tests: Sequence[str]
    nth: int = 1

    def spoil(self, root: Path) -> None:
        path = root / self.file
        parts = path.read_text().split(self.old)
        if "\n" in self.old.strip() or len(parts) <= self.nth:
            raise Unfit(f"{self.name}: {self.file} has no such line any more: {self.old.strip()}")
        path.write_text(
            self.old.join(parts[: self.nth]) + self.new + self.old.join(parts[self.nth :])
        )


@dataclass(frozen=True, slots=True)
class Killer:
    """The test that noticed, and what it said."""

    test: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    fault: Fault
    killer: Killer | None
    seconds: float


def main() -> int:
    options = arguments()
    faults = [fault for fault in read_faults() if options.only in f"{fault.engine}: {fault.name}"]
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as folder:
            check_without_faults(faults, Path(folder))
            with ThreadPoolExecutor(options.jobs) as pool:
                results = list(
                    pool.map(
                        lambda fault: print_result(try_fault(fault, Path(folder)), options.why),
                        faults,
                    )
                )
    except Unfit as reason:
        print(reason, file=sys.stderr)
        return 1
    survivors = [result.fault.name for result in results if result.killer is None]
    print(f"\n{len(faults) - len(survivors)} of {len(faults)} faults were noticed")
    for name in survivors:
        print(f"no test notices: {name}", file=sys.stderr)
    return 1 if survivors else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="faults tried at the same time"
    )
    parser.add_argument("--only", default="", help="faults whose 'engine: name' contains this")
    parser.add_argument("--why", action="store_true", help="show what the tests said")
    return parser.parse_args()


def read_faults() -> list[Fault]:
    return [Fault(**fields) for fields in tomllib.loads(FAULTS.read_text())["fault"]]


def check_without_faults(faults: Sequence[Fault], folder: Path) -> None:
    """Raise Unfit unless every fault fits the source and the tests pass without any."""
    root = copy_of_source(folder, SOUND)
    for fault in faults:
        kept = (root / fault.file).read_text()
        fault.spoil(root)
        (root / fault.file).write_text(kept)
    for engine in ENGINES:
        tests = sorted({test for fault in faults if fault.engine == engine for test in fault.tests})
        if tests and (killer := run(root, engine, tests)):
            raise Unfit(f"without any fault, {killer.test} fails: {killer.reason}")


def try_fault(fault: Fault, folder: Path) -> Result:
    """Run the tests named for the fault; if none of them fails, run all."""
    started = time.monotonic()
    root = copy_of_source(folder, re.sub(r"\W+", "-", f"{fault.engine} {fault.name}"))
    fault.spoil(root)
    killer = run(root, fault.engine, fault.tests) or any_killer(root, folder / SOUND, fault.engine)
    shutil.rmtree(root)
    return Result(fault, killer, time.monotonic() - started)


def any_killer(root: Path, sound: Path, engine: str) -> Killer | None:
    """Return a test of the whole suite that fails with the fault and not without it."""
    broken: list[str] = []
    while killer := run(root, engine, [*ANY_TEST, *(f"--deselect={test}" for test in broken)]):
        if run(sound, engine, [killer.test]) is None:
            return killer
        broken.append(killer.test)
    return None


def print_result(result: Result, why: bool) -> Result:
    killer = result.killer or Killer("SURVIVED")
    line = f"{result.fault.engine:8}  {result.fault.name:52} {result.seconds:4.0f} s  {killer.test}"
    print(f"{line}\n          {killer.reason}" if why else line, flush=True)
    return result


def copy_of_source(folder: Path, name: str) -> Path:
    root = folder / name
    root.mkdir()
    for part in COPIED:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, root / part)
    return root


def run(root: Path, engine: str, tests: Sequence[str]) -> Killer | None:
    """Return the first test that fails; None if all pass."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        MARKS,
        "-k",
        ENGINES[engine],
        *tests,
    ]
    # The copy stands first on the path, before the package that is installed for development.
    # Each run has a server of its own, too young to declare anybody dead.
    young = {"PGOPTIONS": "-c holdfast.restart_grace=0"}
    environment = os.environ | young | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return Killer(f"(still running after {SECONDS} s: {' '.join(tests)})")
    if done.returncode == 0:
        return None
    found, reason = FAILED.search(done.stdout), REASON.search(done.stdout)
    # An error before any test, such as a migration that cannot run, says nothing about the tests.
    if done.returncode != 1 or found is None:
        raise Unfit(
            f"pytest could not run {' '.join(tests)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return Killer(found.group(1), reason.group(1) if reason else "")


if __name__ == "__main__":
    sys.exit(main())
