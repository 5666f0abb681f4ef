"""The faults of `make mutants` fit the source and name existing tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.mutants.__main__ import ROOT, Fault, read_faults

FAULTS = read_faults()
CONTRACT = ROOT / "holdfast" / "testing" / "channels" / "contract.py"
"""Tests that the test class of a channel inherits."""


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.engine}: {fault.name}" for fault in FAULTS])
def test_a_fault_has_its_line_and_its_tests(fault: Fault, tmp_path: Path) -> None:
    copy = tmp_path / fault.file
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / fault.file, copy)
    fault.spoil(tmp_path)
    if copy.suffix == ".py":
        compile(copy.read_text(), copy, "exec")
    for test in fault.tests:
        path, *names = test.split("::")
        source = (ROOT / path).read_text() if names else ""
        assert (ROOT / path).exists()
        for group in names[:-1]:
            assert f"class {group}(ChannelContract)" in source
            source += CONTRACT.read_text()
        assert not names or f"def {names[-1]}(" in source
