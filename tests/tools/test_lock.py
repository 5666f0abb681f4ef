"""`make audit` finds faulty pins, and `make sbom` lists every pin."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from tools import audit, sbom
from tools.lock import LOCKS, ROOT, pins

HASH = f"--hash=sha256:{'0' * 64}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the locks and of what they were made from."""
    for name in (
        "pyproject.toml",
        *(f"{lock}.{ending}" for lock in LOCKS for ending in ("in", "txt")),
    ):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def faults(root: Path) -> list[str]:
    return [
        *(fault for name in LOCKS for fault in audit.lock_faults(root, name)),
        *audit.project_faults(root),
    ]


def test_every_pin_of_this_project_has_hashes_and_meets_its_requirement() -> None:
    assert faults(ROOT) == []
    assert len(pins(ROOT / "requirements.txt")) > 50


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        (
            "requirements.txt",
            "loose>=1 " + HASH,
            "requirements.txt: loose>=1 is not pinned to one version",
        ),
        ("requirements.txt", "bare==1", "requirements.txt: bare has no sha256 hash"),
        (
            "requirements.txt",
            "short==1 --hash=sha256:abc",
            "requirements.txt: short has no sha256 hash",
        ),
        (
            "requirements.in",
            "nowhere",
            "requirements.in: nowhere is not in the lock; run `make pins`",
        ),
        ("requirements-dev.in", "pytest>=1000", "run `make pins`"),
    ],
)
def test_a_faulty_lock_is_reported(project: Path, file: str, line: str, expected: str) -> None:
    with (project / file).open("a") as lock:
        lock.write(f"{line}\n")
    [fault] = faults(project)
    assert expected in fault


def test_a_pin_that_the_package_does_not_accept_is_reported(project: Path) -> None:
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.replace('"rich>=13"', '"rich>=1300"'))
    [fault] = faults(project)
    assert fault.startswith("pyproject.toml: rich>=1300 is not met by ")


@pytest.mark.parametrize(
    "answer",
    [
        "exit 1",
        "echo no network >&2; exit 1",
        "echo '{}'",
        'echo \'{"dependencies": [{"name": "rich"}]}\'',
    ],
)
def test_the_note_says_that_advisories_could_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    assert "not looked for" in _advisories(tmp_path, monkeypatch, answer)[1]


def test_a_known_vulnerability_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"name": "rich", "version": "1", "vulns": [{"id": "PYSEC-1"}]}
    skipped = {"name": "typer", "skip_reason": "not found"}
    found, note = _advisories(
        tmp_path, monkeypatch, f"echo '{json.dumps({'dependencies': [package, skipped]})}'; exit 1"
    )
    assert (found, note) == (
        ["requirements.txt: rich 1: PYSEC-1"],
        "1 known vulnerabilities, 1 packages without advisories",
    )


def _advisories(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> tuple[list[str], str]:
    program = folder / "pip-audit"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(program))
    return audit.advisories([ROOT / "requirements.txt"])


def test_the_bill_of_materials_names_every_pin_once(tmp_path: Path) -> None:
    target = tmp_path / "sbom.json"
    assert sbom.main(str(target)) == 0
    bill = json.loads(target.read_text())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    UUID(bill["serialNumber"].removeprefix("urn:uuid:"))
    refs = [component["bom-ref"] for component in bill["components"]]
    assert sorted(refs) == sorted(
        f"pkg:pypi/{pin.name}@{pin.version}" for pin in pins(ROOT / "requirements.txt")
    )
    assert len(set(refs)) == len(refs)
    own = bill["metadata"]["component"]["bom-ref"]
    edges = {edge["ref"]: edge["dependsOn"] for edge in bill["dependencies"]}
    assert set(edges) == {own, *refs}
    assert {need for needs in edges.values() for need in needs} <= set(refs)
    assert any(ref.startswith("pkg:pypi/fastapi@") for ref in edges[own])
    for component in bill["components"]:
        assert {"type", "name", "version", "purl"} <= set(component)
        assert re.fullmatch(r"pkg:pypi/[a-z0-9-]+@\S+", component["purl"])
        for entry in component.get("licenses", ()):
            assert set(entry) in ({"expression"}, {"license"})
    assert sum("licenses" in component for component in bill["components"]) > len(refs) / 2
    assert sbom.bill(ROOT) == bill, "the same lock makes the same bill"
