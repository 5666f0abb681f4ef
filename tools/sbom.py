"""`make sbom`: a bill of materials (CycloneDX 1.5, JSON) of what the lock installs at run time."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock import LOCKS, ROOT, Pin, pins

LONGEST_LICENSE = 100
"""A longer text in the metadata is the license itself and not its name."""


def main(target: str = "sbom.json") -> int:
    Path(target).write_text(json.dumps(bill(ROOT), indent=2) + "\n")
    print(f"wrote {target}")
    return 0


def bill(root: Path) -> dict[str, Any]:
    """Make the bill of materials; the same lock gives the same bill."""
    lock = root / f"{LOCKS[0]}.txt"
    locked = pins(lock)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    version = _version(root)
    own = f"pkg:pypi/{project['name']}@{version}"
    # A marker can choose one of several versions.
    refs = {pin.name: [_purl(one) for one in locked if one.name == pin.name] for pin in locked}
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    direct = {canonicalize_name(Requirement(text).name) for group in groups for text in group}
    edges = [{"ref": own, "dependsOn": _refs(direct, refs)}]
    edges += [{"ref": _purl(pin), "dependsOn": _refs(_needs(pin), refs)} for pin in locked]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, f'{own}{lock.read_text()}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [_component(pin) for pin in locked],
        "dependencies": edges,
    }


def _version(root: Path) -> str:
    text = (root / "holdfast" / "__init__.py").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("__version__")]
    return line.partition("=")[2].strip().strip("\"'")


def _purl(pin: Pin) -> str:
    return f"pkg:pypi/{pin.name}@{pin.version}"


def _component(pin: Pin) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(pin),
        "name": pin.name,
        "version": pin.version,
        "purl": _purl(pin),
        # A lock has a hash for each file of a release; the component itself is one of them.
        "properties": [{"name": "lock:hash", "value": hash_} for hash_ in pin.hashes],
    }
    if pin.requirement.marker is not None:
        component["properties"].append(
            {"name": "lock:marker", "value": str(pin.requirement.marker)}
        )
    if licenses := _licenses(pin):
        component["licenses"] = licenses
    return component


def _installed(pin: Pin) -> metadata.Distribution | None:
    """Find the installed package, if it has the version of the lock; some are for other systems."""
    try:
        found = metadata.distribution(pin.name)
    except metadata.PackageNotFoundError:
        return None
    return found if found.version == pin.version else None


def _licenses(pin: Pin) -> list[dict[str, Any]]:
    found = _installed(pin)
    if found is None:
        return []
    if expressions := found.metadata.get_all("License-Expression"):
        return [{"expression": expressions[0]}]
    text = "".join(found.metadata.get_all("License") or ()).strip()
    if text and len(text) <= LONGEST_LICENSE and "\n" not in text:
        return [{"license": {"name": text}}]
    classified = [
        value
        for value in found.metadata.get_all("Classifier") or ()
        if value.startswith("License :: ")
    ]
    return [{"license": {"name": value.rpartition(" :: ")[2]}} for value in classified]


def _needs(pin: Pin) -> set[str]:
    found = _installed(pin)
    needed = [Requirement(text) for text in (found.requires if found else None) or ()]
    return {
        canonicalize_name(one.name)
        for one in needed
        if one.marker is None or one.marker.evaluate({"extra": ""})
    }


def _refs(names: Iterable[str], refs: dict[str, list[str]]) -> list[str]:
    return sorted(ref for name in names for ref in refs.get(name, ()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
