"""Build the Matrix channel from its settings."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.channels import Setup
from holdfast.channels.matrix import MatrixChannel
from holdfast.channels.matrix.access import access_of
from holdfast.settings.channels.matrix import Matrix


def matrix_channel(setup: Setup, tables: Sequence[Matrix]) -> MatrixChannel:
    """Return the channel of all accounts."""
    accesses = [access_of(table, setup.settings.pairing) for table in tables]
    return MatrixChannel(accesses, files=setup.settings.files, store=setup.store)
