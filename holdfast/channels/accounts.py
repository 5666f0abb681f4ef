"""Channels with several accounts: bots, mailboxes, numbers or workspaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from holdfast.channels.base import Check

Access = TypeVar("Access")


async def check_accounts(
    accesses: Sequence[Access],
    check: Callable[[Access], Awaitable[Sequence[Check]]],
    name_of: Callable[[Access], str],
) -> list[Check]:
    """Check each account. With several accounts, each line names its account."""
    lines: list[Check] = []
    for access in accesses:
        suffix = f" ({name_of(access)})" if len(accesses) > 1 else ""
        lines += [line._replace(name=f"{line.name}{suffix}") for line in await check(access)]
    return lines
