"""`holdfast audit`: list the audit log."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import (
    AsJson,
    Before,
    Config,
    Database,
    Home,
    Limit,
    load_settings,
    open_existing,
)
from holdfast.cli.printing import print_rows

if TYPE_CHECKING:
    from holdfast.queue.audit import AuditEntry
    from holdfast.settings import Settings

COLUMNS = ("id", "at", "actor", "action", "subject", "details")


def actor() -> str:
    """Return this user's name for the audit log.

    It comes from the operating system, because anybody can change the environment."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:{os.getuid()}"


def audit(
    limit: Limit = 20,
    since: Annotated[
        str | None,
        typer.Option(help="Only since a time (2026-01-31T12:00) or for a duration (7d)."),
    ] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, such as retried.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only this actor, such as cli:root.")] = None,
    before: Before = None,
    database: Database = None,
    config: Config = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """List who retried, discarded, forgot, logged in and the like, newest first."""
    from holdfast.queue.audit import ACTIONS

    if action is not None and action not in ACTIONS:
        raise typer.BadParameter(f"there is no action {action!r}; known are: {', '.join(ACTIONS)}")
    start = None if since is None else _parse_since(since)
    settings = load_settings(config, database=database, home=home)
    entries = asyncio.run(_audit(settings, start, action, actor, limit, before))
    print_rows(entries, as_json, COLUMNS, _line, empty="the audit log has no such entry")


def _parse_since(text: str) -> datetime | timedelta:
    """Parse a time or a duration; a time without a zone is local."""
    from holdfast.settings import duration

    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        pass
    try:
        return duration(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a duration (7d) nor a time (2026-01-31T12:00)"
        ) from None


async def _audit(
    settings: Settings,
    since: datetime | timedelta | None,
    action: str | None,
    actor: str | None,
    limit: int,
    before: int | None,
) -> list[AuditEntry]:
    from holdfast.queue.audit import AuditFilter

    async with open_existing(settings) as store:
        if isinstance(since, timedelta):
            since = await store.now() - since
        which = AuditFilter(action=action, actor=actor, since=since)
        return await store.audit_log(which, limit=limit, before_id=before)


def _line(entry: AuditEntry) -> tuple[object, ...]:
    details = json.dumps(entry.details, ensure_ascii=False) if entry.details else ""
    return entry.id, entry.at, entry.actor, entry.action, entry.subject, details
