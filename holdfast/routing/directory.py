"""The directory: agents, teams and limits of all live processes, merged into one routing.

Every process records what it serves in its own row, so that its entries disappear with it. Where
definitions differ, the oldest process decides. The merged routing is written to the setting
`routing`, which SQL callers and processes of release 0.4.0 read. Such processes write it, too:
their entries are kept in it under OLDER while they live."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, cast

from holdfast.agents.base import Team
from holdfast.errors import HoldfastError, Unknown
from holdfast.message import Payload
from holdfast.queue.event import INBOX
from holdfast.queue.store import Process, Store
from holdfast.routing.router import PLATFORMS, SETTING, Routing
from holdfast.settings import Settings
from holdfast.settings.agents import COMMAND_POLICY, CommandTable
from holdfast.store.pauses import ActivePauses, Pauses
from holdfast.store.payload import dump, parse
from holdfast.telemetry import AGENTS_CONFLICT, logs

log = logging.getLogger(__name__)

MERGED, OLDER = "merged", "older"
ROUTING_TABLES = ("lanes", "attempts", "names", "teams", "kinds", "descriptions")
"""Tables of a routing in which the first definition of a name wins."""

CHANNELS, PROVIDERS = "channels", "providers"
"""Keys of the channels that a process serves, and of the model providers of its agents, beside the
keys of its routing."""
FOLLOW_EVERY = timedelta(seconds=10)
"""Interval between looks at the agents of other processes, beside those on a signal."""
FOLLOW_AT_MOST = timedelta(seconds=1)
"""Least time between two looks."""
REMEMBERED = 1.0
"""Seconds for which a directory that was read is used again."""

Entry = tuple[str, Routing]
"""A process and the agents it serves."""


@dataclass(frozen=True, kw_only=True)
class Directory:
    """The agents that can be asked now, and the processes that serve them."""

    routing: Routing = field(default_factory=Routing)
    entries: Sequence[Entry] = ()
    channels: frozenset[str] = frozenset()
    """Channels that a live process serves. Processes of older releases do not name theirs."""
    paused: ActivePauses = field(default_factory=ActivePauses)
    """Pauses of operators; empty unless `read` read them."""

    @cached_property
    def servers(self) -> dict[str, list[str]]:
        """The processes that serve each agent, oldest first."""
        servers: dict[str, list[str]] = {}
        for process, routing in self.entries:
            for agent in routing.lanes:
                servers.setdefault(agent, []).append(process)
        return servers

    @cached_property
    def conflicts(self) -> list[str]:
        """Definitions that differ between processes, each in one line that says which one holds."""
        conflicts: dict[str, str] = {}
        older = _Merger()
        for process, routing in self.entries:
            for line in _differences(older.routing, routing):
                conflicts.setdefault(line, process)
            older.add(routing)
        return [f"{line} (process {process})" for line, process in conflicts.items()]

    def is_served(self, target: str) -> bool:
        """Return whether a live process works the messages of a target."""
        return (target or self.routing.default) in self.servers

    def is_delivered(self, channel: str) -> bool:
        """Return whether a process delivers the responses of a channel, now or once it runs again.

        Clients fetch the responses of all other channels."""
        return channel in self.channels or channel in PLATFORMS

    def is_paused(self, agent: str) -> bool:
        """Return whether the messages of an agent wait for somebody to resume it."""
        return self.paused.find("agent", agent) is not None or self.paused.has_queue(INBOX)

    def paused_agent(self, text: str, agent: str | None = None) -> str | None:
        """Return the agent of a message if it is paused, else None."""
        if not self.paused.pauses:
            return None
        route = self.routing.route_to(agent) if agent else self.routing.route(text)
        name = route.agent or self.routing.default
        return name if self.is_paused(name) else None

    def missing(self, text: str, agent: str | None = None) -> str | None:
        """Return the agent of a message if no live process serves it, else None.

        Before anything runs, a message that names no agent is for the first process to start."""
        route = self.routing.route_to(agent) if agent else self.routing.route(text)
        name = route.agent or self.routing.default
        is_early = not self.entries and not route.agent
        return None if is_early or name in self.servers else name or "the default agent"


def waits_for_a_server(agent: str) -> str:
    """Return the warning for a message whose agent no process serves."""
    return f"no running process serves {agent}; the message waits until one does"


def waits_for_resume(agent: str) -> str:
    """Return the warning for a message whose agent is paused."""
    return f"{agent} is paused; the message waits until somebody resumes it"


class _Merger:
    """A merged routing that grows. Each routing costs time for its own entries only."""

    def __init__(self) -> None:
        self._default = ""
        self._limits: dict[str, int] = {}
        self._tables: dict[str, dict[str, Any]] = {name: {} for name in ROUTING_TABLES}

    @property
    def routing(self) -> Routing:
        """The routings added so far, as a view: it shows those added later, too."""
        tables: dict[str, Any] = self._tables
        return Routing(default=self._default, limits=self._limits, **tables)

    def add(self, one: Routing) -> None:
        self._default = self._default or one.default
        for name, table in self._tables.items():
            for key, value in getattr(one, name).items():
                table.setdefault(key, value)
        for agent, limit in one.limits.items():
            self._limits[agent] = min(limit, self._limits.get(agent, limit))


def merge(routings: Iterable[Routing]) -> Routing:
    """Merge routings: the first definition of each agent and team wins, and the smallest limit."""
    merger = _Merger()
    for one in routings:
        merger.add(one)
    return merger.routing


def configured_routing(settings: Settings) -> Routing:
    """Return the agents and teams of holdfast.toml, even if no process serves them."""
    tables = settings.agents
    usual = {
        id_: COMMAND_POLICY["lane"]
        for id_, table in tables.items()
        if isinstance(table, CommandTable)
    }
    return Routing(
        default=settings.default or next(iter(tables), ""),
        lanes={id_: table.lane or usual.get(id_, "conversation") for id_, table in tables.items()},
        attempts={id_: table.max_attempts for id_, table in tables.items() if table.max_attempts},
        names={id_: table.name for id_, table in tables.items() if table.name},
        teams={
            id_: Team(
                name=team.name or id_,
                agents=team.agents,
                leader=team.leader,
                description=team.description or "",
            )
            for id_, team in settings.teams.items()
        },
        kinds={id_: table.kind for id_, table in tables.items()},
        descriptions={id_: table.description for id_, table in tables.items() if table.description},
    )


def _is_routing(written: object) -> bool:
    """Return whether a stored routing has the right shape; anybody can write to the table."""
    try:
        routing = Routing.of(cast(Payload, written))
        parts: list[object] = [routing.lanes, routing.attempts, routing.names, routing.limits]
        parts += [routing.kinds, routing.descriptions]
        return all(isinstance(part, dict) for part in parts)
    except (AttributeError, KeyError, TypeError):
        return False


async def read(store: Store, known: Routing | None = None) -> Directory:
    """Read the directory. `known` adds agents that need no process.

    While no process runs, the agents of the last one stay known."""
    written = await store.setting(SETTING) or {}
    if not _is_routing(written):
        raise HoldfastError(
            f"the setting {SETTING!r} in the database is damaged;"
            " restart a process to write it anew"
        )
    directory = _directory(await store.processes(), written, known)
    return replace(directory, paused=await Pauses(store).all())


async def publish(store: Store) -> Directory:
    """Bring the merged routing and the limits in the store up to date with the live processes."""
    stored = await store.setting(SETTING) or {}
    written = stored if _is_routing(stored) else {}
    processes = await store.processes()
    directory = _directory(processes, written)
    if directory.servers:
        older = _older(written) if any(process.serves is None for process in processes) else None
        merged: Payload = asdict(directory.routing) | {MERGED: True, OLDER: older}
        if parse(dump(merged)) != written:
            await store.set_setting(SETTING, merged)
            await _limit(store, written.get("limits") or {}, directory.routing.limits)
            await store.wake(SETTING)
    return directory


async def _limit(store: Store, before: Mapping[str, int], now: Mapping[str, int]) -> None:
    for agent in sorted({*before, *now}):
        if before.get(agent) != now.get(agent):
            await store.limit(INBOX, agent, now.get(agent))


class PublishedDirectory:
    """The directory in the store, kept up to date while processes come and go."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._conflicts: frozenset[str] = frozenset()
        self.changed = asyncio.Event()
        """Set by a caller who knows that a process came or went."""

    async def publish(self) -> Directory:
        """Publish the directory, and warn of new conflicts in it."""
        directory = await publish(self._store)
        for conflict in directory.conflicts:
            if conflict not in self._conflicts:
                log.warning(logs.Entry(AGENTS_CONFLICT, conflict=conflict))
        self._conflicts = frozenset(directory.conflicts)
        return directory

    async def follow(self, on_change: Callable[[Directory], None]) -> None:
        """Publish the directory again whenever it may have changed, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_EVERY.total_seconds()):
                    await self.changed.wait()
            self.changed.clear()
            with suppress(HoldfastError):
                on_change(await self.publish())
            await asyncio.sleep(FOLLOW_AT_MOST.total_seconds())


class Current:
    """The directory as of at most a second ago, read once for many callers."""

    def __init__(self, store: Callable[[], Store], known: Callable[[], Routing]) -> None:
        self._store = store
        self._known = known
        self._directory = Directory()
        self._read_at = -REMEMBERED
        self._reading: asyncio.Future[bool] | None = None

    async def get(self) -> Directory:
        while time.monotonic() - self._read_at >= REMEMBERED:
            if self._reading is None:
                await self._read()
                break
            # One read serves all callers that wait, and so does its failure.
            if await asyncio.shield(self._reading):
                break
        return self._directory

    async def _read(self) -> None:
        self._reading = reading = asyncio.get_running_loop().create_future()
        began_at = time.monotonic()
        try:
            self._directory = await read(self._store(), self._known())
            self._read_at = began_at
            reading.set_result(True)
        except Exception as error:
            reading.set_exception(error)
            # Mark it as retrieved: perhaps no other caller waits for it.
            reading.exception()
            raise
        finally:
            self._reading = None
            if not reading.done():
                # This caller was cancelled; another one reads.
                reading.set_result(False)

    async def for_message(self, text: str, agent: str | None) -> tuple[Directory, str | None]:
        """Return the directory, and the message's agent if unserved; raise Unknown."""
        directory = await self.get()
        try:
            return directory, directory.missing(text, agent)
        except Unknown:
            # Its process may have started since.
            self.forget()
            directory = await self.get()
            return directory, directory.missing(text, agent)

    def forget(self) -> None:
        """Read again for the next caller."""
        self._read_at = -REMEMBERED


def _directory(
    processes: Sequence[Process], written: Payload, known: Routing | None = None
) -> Directory:
    entries = list(_entries(processes, _older(written)))
    merged = merge(routing for _, routing in entries)
    if not merged.lanes:
        merged = Routing.of(written)
    channels = frozenset(
        channel for process in processes for channel in (process.serves or {}).get(CHANNELS, ())
    )
    routing = merged if known is None else merge([merged, known])
    return Directory(routing=routing, entries=entries, channels=channels)


def _entries(processes: Sequence[Process], older: Payload | None) -> Iterator[Entry]:
    for process in processes:
        serves = older if process.serves is None else process.serves
        if serves is not None:
            yield process.id, Routing.of(serves)


def _older(written: Payload) -> Payload | None:
    """Return the routing that a process of release 0.4.0 wrote last, if any."""
    older: Payload | None = written.get(OLDER) if MERGED in written else written or None
    return older


def _differences(known: Routing, other: Routing) -> Iterator[str]:
    if known.default and other.default and known.default != other.default:
        yield f"two default agents: {known.default} holds, not {other.default}"
    for team in sorted(known.teams.keys() & other.teams.keys()):
        first_team, second_team = known.teams[team], other.teams[team]
        if first_team != second_team:
            holds, other_team = _members(first_team), _members(second_team)
            yield f"team {team} is defined twice: {holds} holds, not {other_team}"
    for agent in sorted(known.lanes.keys() & other.lanes.keys()):
        if known.limits.get(agent) != other.limits.get(agent):
            both = " and ".join(str(one.limits.get(agent, "none")) for one in (known, other))
            yield f"two limits (concurrency) of agent {agent}: {both}; the smaller holds"
        for what, mine, theirs in (
            ("lane", known.lanes, other.lanes),
            ("max_attempts", known.attempts, other.attempts),
        ):
            first, second = mine.get(agent), theirs.get(agent)
            if first != second:
                yield f"two values of {what} of agent {agent}: {first} holds, not {second}"


def _members(team: Team) -> str:
    return f"{', '.join(team.agents)} led by {team.leader}"
