"""Check that every dependency is pinned by hash, fits, and has no known vulnerability."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock import LOCKS, ROOT, Pin, pins, read_requirements

SECONDS = 120


def main() -> int:
    faults = [fault for name in LOCKS for fault in lock_faults(ROOT, name)]
    faults += project_faults(ROOT)
    found, note = advisories([ROOT / f"{name}.txt" for name in LOCKS])
    for fault in [*faults, *found]:
        print(fault, file=sys.stderr)
    count = sum(len(pins(ROOT / f"{name}.txt")) for name in LOCKS)
    print(f"{count} pins, {len(faults)} faults; {note}")
    return 1 if faults or found else 0


def lock_faults(root: Path, name: str) -> Iterator[str]:
    """Find pins that are loose or have no hash, and requirements that they do not meet."""
    locked = pins(root / f"{name}.txt")
    for pin in locked:
        if pin.version is None:
            yield f"{name}.txt: {pin.requirement} is not pinned to one version"
        if not pin.hashes:
            yield f"{name}.txt: {pin.name} has no sha256 hash"
    known = {pin.name: pin for pin in locked}
    if name != LOCKS[0]:
        known |= {pin.name: pin for pin in pins(root / f"{LOCKS[0]}.txt")}
    yield from _unmet(f"{name}.in", read_requirements(root / f"{name}.in"), known)


def project_faults(root: Path) -> list[str]:
    """Find dependencies of the package that the lock does not meet."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    known = {pin.name: pin for pin in pins(root / f"{LOCKS[0]}.txt")}
    # The extra `all` names the package itself.
    wanted = [
        Requirement(text)
        for group in groups
        for text in group
        if not text.startswith(f"{project['name']}[")
    ]
    return list(_unmet("pyproject.toml", wanted, known))


def _unmet(
    source: str, requirements: Sequence[Requirement], known: dict[str, Pin]
) -> Iterator[str]:
    for requirement in requirements:
        pin = known.get(canonicalize_name(requirement.name))
        if pin is None:
            yield f"{source}: {requirement.name} is not in the lock; run `make pins`"
        elif pin.version is not None and not requirement.specifier.contains(
            pin.version, prereleases=True
        ):
            yield (
                f"{source}: {requirement} is not met by {pin.version} of the lock; run `make pins`"
            )


def advisories(locks: Sequence[Path]) -> tuple[list[str], str]:
    """Ask pip-audit. Return known vulnerabilities and a note that says how complete they are."""
    program = shutil.which(
        "pip-audit", path=f"{Path(sys.executable).parent}:{Path.home() / '.local/bin'}:/usr/bin"
    )
    if program is None:
        return [], "vulnerabilities not looked for: pip-audit is not installed"
    found: list[str] = []
    unknown = 0
    for lock in locks:
        command = [
            program,
            "--format=json",
            "--disable-pip",
            "--require-hashes",
            "--progress-spinner=off",
        ]
        try:
            asked = subprocess.run(
                [*command, "--requirement", str(lock)],
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
            packages = json.loads(asked.stdout)["dependencies"]
            looked_at = [package for package in packages if "version" in package]
            unknown += len(packages) - len(looked_at)
            if packages and not looked_at:
                raise ValueError("none of the packages is known there")
            found += [
                f"{lock.name}: {advisory}"
                for package in looked_at
                for advisory in _advisories(package)
            ]
        except (subprocess.TimeoutExpired, ValueError, KeyError):
            return found, "vulnerabilities not looked for: pip-audit did not reach its advisories"
    return found, f"{len(found)} known vulnerabilities, {unknown} packages without advisories"


def _advisories(package: dict[str, Any]) -> list[str]:
    return [
        f"{package['name']} {package['version']}: {advisory['id']}"
        for advisory in package.get("vulns", ())
    ]


if __name__ == "__main__":
    sys.exit(main())
