"""The faults of `make mutants` fit the source and name existing tests."""

from __future__ import annotations

import pytest

from tools.mutants.__main__ import ROOT, Fault, read_faults

FAULTS = read_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.engine}: {fault.name}" for fault in FAULTS])
def test_a_fault_has_its_line_and_its_tests(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text().count(fault.old) >= fault.nth
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name}(" in (ROOT / path).read_text()
