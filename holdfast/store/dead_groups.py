"""Dead letters in groups: by queue, target, error class and cause, with notes of operators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from holdfast.queue.audit import AuditEntry
from holdfast.queue.event import INBOX
from holdfast.queue.journal import EFFECT_UNKNOWN, Assume
from holdfast.queue.store import Filter, Store
from holdfast.store.overview import DEAD
from holdfast.store.payload import dump, storable_name
from holdfast.store.scoped import GREATEST_ID, Dialect, dialect_of

CAUSE_LENGTH = 300
"""Characters of an error that tell causes apart."""
MOST_ROWS = 50_000
"""Different errors that are grouped, latest first."""
MOST_GROUPS = 500
MOST_CHANGED = 10_000
"""Dead letters that one call retries or discards."""
BATCH = 500
NOTE_LENGTH = 2000
KEEP_NOTES = timedelta(days=90)
"""Age at which a note is dropped if its group has no letters."""

GROUP_ID = re.compile(r"[0-9a-f]{16}")
_WORD = re.compile(r"[\w-]+")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note of an operator on a group."""

    text: str
    noted_by: str
    noted_at: datetime


@dataclass(slots=True, kw_only=True)
class DeadGroup:
    """Dead letters of one cause."""

    id: str
    queue: str
    target: str
    error_class: str | None
    cause: str
    count: int
    newest_at: datetime
    oldest_at: datetime
    newest_id: int
    note: Note | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Dead letters to change: by ids, by group, or all that match the other fields."""

    ids: Sequence[int] | None = None
    group: str | None = None
    queue: str | None = None
    target: str | None = None
    error_class: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """Numbers of dead letters changed, or to be changed, and skipped because `assume` is missing.
    `more` says whether some are left over."""

    count: int
    skipped: int
    more: bool


def cause_of(error: str | None, error_class: str | None) -> str:
    """Return the cause of an error: its first line without quoted texts, ids and numbers.

    HTTP statuses stay, since they tell causes apart."""
    lines = (error or "").strip()[:CAUSE_LENGTH].splitlines()
    text = _QUOTED.sub("…", lines[0]) if lines else ""
    return _WORD.sub(_without_numbers, text) or error_class or "unknown"


def _without_numbers(word: re.Match[str]) -> str:
    text = word[0]
    is_status = len(text) == 3 and text.isascii() and text.isdigit() and text[0] in "45"
    return text if is_status or not any(sign.isdigit() for sign in text) else "…"


def group_id(queue: str, target: str, error_class: str | None, cause: str) -> str:
    """Return the id of a group: a hash, the same on every machine."""
    return sha256(dump([queue, target, error_class, cause]).encode()).hexdigest()[:16]


class DeadGroups:
    """The dead letters of a store in groups. `default` is the agent of messages that name none."""

    def __init__(
        self,
        store: Store,
        default: str = "",
        *,
        most_changed: int = MOST_CHANGED,
        batch: int = BATCH,
    ) -> None:
        self._store = store
        self._default = default
        self._most_changed = most_changed
        self._batch = batch
        self._dialect: Dialect = dialect_of(store)

    async def all(self, queue: str | None = None) -> list[DeadGroup]:
        """List groups, the one with the newest letter first."""
        groups = sorted(
            (await self._groups(queue)).values(), key=lambda one: one.newest_at, reverse=True
        )[:MOST_GROUPS]
        notes = await self._notes([one.id for one in groups])
        for one in groups:
            one.note = notes.get(one.id)
        return groups

    async def find(self, id_: str) -> DeadGroup | None:
        """Return a group, None if it has no letters."""
        return (await self._groups(None)).get(id_)

    async def dead_ids(
        self,
        group: DeadGroup,
        *,
        before_id: int | None = None,
        since_id: int | None = None,
        limit: int = MOST_CHANGED,
    ) -> list[int]:
        """Return ids of the letters of a group, newest first."""
        selection = Selection(queue=group.queue, target=group.target)
        rows = await self._rows(selection, before_id, MOST_ROWS, since_id=since_id)
        return [
            id_
            for id_, error_class, error in rows
            if error_class == group.error_class and cause_of(error, error_class) == group.cause
        ][:limit]

    async def retry(
        self, which: Selection, *, actor: str, assume: Assume | None = None, dry_run: bool = False
    ) -> ChangeResult:
        """Retry dead letters. Those with an unknown effect need a decision, `assume`."""
        if assume is None:
            allowed, skipped = await self._select_known(which)
        else:
            allowed, skipped = await self._select(which), []
        ids, count = allowed[: self._most_changed], 0
        for start in range(0, 0 if dry_run else len(ids), self._batch):
            batch = Filter(ids=ids[start : start + self._batch])
            count += len(await self._store.retry(batch, actor=actor, assume=assume))
        return ChangeResult(
            count=len(ids) if dry_run else count,
            skipped=len(skipped),
            more=len(allowed) > len(ids),
        )

    async def discard(self, which: Selection, *, actor: str, dry_run: bool = False) -> ChangeResult:
        """Discard dead letters: payload and error are erased."""
        dead_ids = await self._select(which)
        ids, count = dead_ids[: self._most_changed], 0
        for start in range(0, 0 if dry_run else len(ids), self._batch):
            batch = Filter(ids=ids[start : start + self._batch])
            count += len(await self._store.discard(batch, actor=actor))
        return ChangeResult(
            count=len(ids) if dry_run else count, skipped=0, more=len(dead_ids) > len(ids)
        )

    async def note(self, id_: str, text: str, *, actor: str) -> None:
        """Write the note of a group; an empty one removes it."""
        mark = self._dialect.mark.format
        if text:
            values = {
                "cause": id_,
                "note": storable_name(text),
                "noted_by": actor,
                "noted_at": self._dialect.moment(await self._store.now()),
            }
            await self._dialect.write(
                f"insert into {self._table('dead_note')} ({', '.join(values)})"
                f" values ({', '.join(map(mark, values))})"
                " on conflict (cause) do update set note = excluded.note,"
                " noted_by = excluded.noted_by, noted_at = excluded.noted_at returning cause",
                values,
            )
        else:
            await self._dialect.write(
                f"delete from {self._table('dead_note')} where cause = {mark('cause')}"
                " returning cause",
                {"cause": id_},
            )
        await self._store.audit(AuditEntry(actor=actor, action="noted", subject=f"group:{id_}"))

    async def prune_notes(self) -> int:
        """Delete old notes of groups that have no letters. Returns how many."""
        before = self._dialect.moment(await self._store.now() - KEEP_NOTES)
        condition = f"noted_at < {self._dialect.mark.format('before')}"
        rows = await self._dialect.rows(
            f"select cause from {self._table('dead_note')} where {condition}", {"before": before}
        )
        if not rows:
            return 0
        kept = await self._groups(None)
        gone = [cause for (cause,) in rows if cause not in kept]
        each = self._dialect.each.format("gone")
        deleted = await self._dialect.write(
            f"delete from {self._table('dead_note')} where {condition}"
            f" and cause in (select gone.value from {each}) returning cause",
            {"before": before, "gone": self._dialect.array(gone)},
        )
        return len(deleted)

    async def _groups(self, queue: str | None) -> dict[str, DeadGroup]:
        """Group the different errors of each target by their causes."""
        which = "" if queue is None else f" and queue = {self._dialect.mark.format('queue')}"
        columns = f"queue, target, error_class, substr(last_error, 1, {CAUSE_LENGTH})"
        rows = await self._dialect.rows(
            f"select {columns}, count(*), max(finished_at), min(finished_at), max(id)"
            f" from {self._table('event_hist')} where {DEAD}{which}"
            f" group by {columns} order by max(finished_at) desc limit {MOST_ROWS}",
            {} if queue is None else {"queue": queue},
        )
        groups: dict[str, DeadGroup] = {}
        for row in rows:
            self._add(groups, row)
        return groups

    def _add(self, groups: dict[str, DeadGroup], row: Sequence[Any]) -> None:
        queue, target, error_class, error, count, newest, oldest, newest_id = row
        target = target or (self._default if queue == INBOX else "")
        cause = cause_of(error, error_class)
        id_ = group_id(queue, target, error_class, cause)
        newest_at, oldest_at = map(self._dialect.to_datetime, (newest, oldest))
        known = groups.get(id_)
        if known is None:
            groups[id_] = DeadGroup(
                id=id_,
                queue=queue,
                target=target,
                error_class=error_class,
                cause=cause,
                count=count,
                newest_at=newest_at,
                oldest_at=oldest_at,
                newest_id=newest_id,
            )
            return
        known.count += count
        known.newest_at = max(known.newest_at, newest_at)
        known.oldest_at = min(known.oldest_at, oldest_at)
        known.newest_id = max(known.newest_id, newest_id)

    async def _select(self, which: Selection) -> list[int]:
        """Return the ids of the selected letters, newest first.

        One more than a call may change, which shows that some are left over."""
        most = self._most_changed + 1
        if which.group is None:
            return [id_ for id_, *_ in await self._rows(which, None, most)]
        group = await self.find(which.group)
        return [] if group is None else await self.dead_ids(group, limit=most)

    async def _select_known(self, which: Selection) -> tuple[list[int], list[int]]:
        """Return the ids of the selected letters, and apart from them those whose effect is
        unknown; otherwise as `_select` does."""
        if which.group is not None:
            group, ids = await self.find(which.group), await self._select(which)
            is_unknown = group is not None and group.error_class == EFFECT_UNKNOWN
            return ([], ids) if is_unknown else (ids, [])
        most = self._most_changed + 1
        known = await self._rows(which, None, most, skips_unknown=True)
        has_unknown = which.error_class in (None, EFFECT_UNKNOWN)
        unknown = replace(which, error_class=EFFECT_UNKNOWN)
        return [id_ for id_, *_ in known], await self._select(unknown) if has_unknown else []

    async def _rows(
        self,
        which: Selection,
        before_id: int | None,
        limit: int,
        *,
        since_id: int | None = None,
        skips_unknown: bool = False,
    ) -> Sequence[tuple[int, str | None, str | None]]:
        conditions, params = self._conditions(which)
        if skips_unknown:
            conditions.append(f"coalesce(error_class, '') <> '{EFFECT_UNKNOWN}'")
        mark = self._dialect.mark.format
        conditions.append(f"id < {mark('before_id')} and id > {mark('since_id')}")
        below = GREATEST_ID if before_id is None else before_id
        return await self._dialect.rows(
            f"select id, error_class, substr(last_error, 1, {CAUSE_LENGTH})"
            f" from {self._table('event_hist')} where {DEAD} and {' and '.join(conditions)}"
            f" order by id desc limit {limit}",
            params | {"before_id": below, "since_id": since_id or 0},
        )

    def _conditions(self, which: Selection) -> tuple[list[str], dict[str, Any]]:
        mark, conditions, params = self._dialect.mark.format, list[str](), dict[str, Any]()
        if which.ids is not None:
            conditions.append(self._dialect.ids)
            params["ids"] = self._dialect.array(list(which.ids))
        if which.target is not None:
            is_default = which.target == self._default
            unnamed = f" or target = '' and queue = '{INBOX}'" if is_default else ""
            conditions.append(f"(target = {mark('target')}{unnamed})")
            params["target"] = which.target
        for name in ("queue", "error_class"):
            if (value := getattr(which, name)) is not None:
                conditions.append(f"{name} = {mark(name)}")
                params[name] = value
        if which.text is not None:
            conditions.append(self._dialect.contains.format("last_error", mark("text")))
            params["text"] = which.text
        return conditions, params

    async def _notes(self, ids: Iterable[str]) -> dict[str, Note]:
        each = self._dialect.each.format("ids")
        rows = await self._dialect.rows(
            f"select cause, note, noted_by, noted_at from {self._table('dead_note')}"
            f" where cause in (select ids.value from {each})",
            {"ids": self._dialect.array(list(ids))},
        )
        return {
            cause: Note(text=note, noted_by=by, noted_at=self._dialect.to_datetime(at))
            for cause, note, by, at in rows
        }

    def _table(self, name: str) -> str:
        return f"{self._dialect.schema}{name}"
