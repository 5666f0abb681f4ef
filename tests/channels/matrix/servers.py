"""The homeserver that all tests of a run share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from holdfast.testing.matrix import Synapse, shared_synapse
from holdfast.testing.servers import Unavailable


def run_synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    """Yield the server of this run. Skip the test if it cannot be had; in CI, fail instead."""
    base = tmp_path_factory.getbasetemp()
    # Workers of one run have folders below a common one.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "synapse"
    folder.mkdir(exist_ok=True)
    try:
        with shared_synapse(folder) as server:
            yield server
    except Unavailable as reason:
        if os.environ.get("CI") == "true":
            raise pytest.fail.Exception(str(reason), pytrace=False) from None
        raise pytest.skip.Exception(str(reason)) from None
