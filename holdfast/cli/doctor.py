"""`holdfast doctor`: check everything that a start needs, one line each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, cast

import typer

from holdfast import __version__
from holdfast.cli.hardening import exposed_files_problem
from holdfast.cli.options import App, AsJson, Config, Database, Home, load_settings
from holdfast.cli.printing import echo_state, print_json
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.app import AgentHarness
    from holdfast.channels.base import Channel
    from holdfast.memory.knowledge import IndexStatus
    from holdfast.queue.store import Store
    from holdfast.settings import Settings
    from holdfast.store.facts import Facts

OLDEST_POSTGRES, NEWEST_POSTGRES = 14, 18
SKEW_WARN, SKEW_FAIL = timedelta(seconds=1), timedelta(seconds=30)
SESSIONS_BESIDE_POOL = 2
"""The direct session, and the session that checks the schema."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str


def doctor(
    database: Database = None,
    config: Config = None,
    home: Home = None,
    app: App = None,
    as_json: AsJson = False,
) -> None:
    """Check database, settings, extras, app, tokens and files; change nothing."""
    settings = load_settings(config, database=database, home=home, app=app)
    findings = []
    for finding in _examine(settings):
        findings.append(finding)
        if not as_json:
            echo_state(finding.state, f"{finding.name}: {finding.detail}")
    if as_json:
        print_json([asdict(finding) for finding in findings])
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(1)


def _examine(settings: Settings) -> Iterator[Finding]:
    from holdfast.settings.extras import is_missing
    from holdfast.store.facts import facts

    yield Finding("program", "ok", f"holdfast {__version__}")
    app, loaded = _load_app(settings)
    try:
        server = facts(settings.database)
    except HoldfastError as error:
        yield Finding("database", "fail", str(error))
    else:
        yield _server(server)
        yield (schema := _schema(settings))
        if schema.state == "ok":
            yield _index(settings)
            yield from _agents(settings)
            yield from _gaps(settings)
        if server.major is not None:
            yield _timescale(server)
            yield _pgvector(server)
            yield _clock(server)
            yield _pool(server, settings, len(app.agents if app else settings.agents))
            yield _direct(settings)
    yield from _extras(settings)
    yield loaded
    if app is not None:
        yield from _app(app, settings)
    if not is_missing("llm"):
        yield from _mcp_servers(settings)
    yield _tokens()
    yield from _channels(settings)
    yield _home(settings)


def _server(server: Facts) -> Finding:
    if server.major is not None and server.major < OLDEST_POSTGRES:
        problem = f"{server.server} is too old; PostgreSQL {OLDEST_POSTGRES} or newer is needed"
        return Finding("database", "fail", problem)
    if server.major is not None and server.major > NEWEST_POSTGRES:
        problem = f"{server.server} is newer than the newest tested version, {NEWEST_POSTGRES}"
        return Finding("database", "warn", problem)
    return Finding("database", "ok", server.server)


def _schema(settings: Settings) -> Finding:
    from holdfast.migrations.runner import migrate

    try:
        report = migrate(settings.database, dry_run=True)
    except HoldfastError as error:
        return Finding("schema", "fail", str(error))
    if report.due:
        current = f"version {report.found}" if report.found else "missing"
        advice = f"{current}; `holdfast migrate` brings it to {report.version}"
        return Finding("schema", "warn", advice)
    if report.warnings:
        return Finding("schema", "warn", "; ".join(report.warnings))
    return Finding("schema", "ok", f"version {report.found}")


def _index(settings: Settings) -> Finding:
    import asyncio

    from holdfast.cli.status import describe_reindexing
    from holdfast.memory.maintenance import index_progress
    from holdfast.store import open_store
    from holdfast.store.memory import open_knowledge

    async def read_progress() -> IndexStatus | None:
        async with open_store(settings.database) as store:
            return await index_progress(store, open_knowledge(store))

    try:
        index = asyncio.run(read_progress())
    except HoldfastError as error:
        return Finding("memory", "fail", str(error))
    if index is None:
        return Finding("memory", "ok", "nothing is indexed yet")
    if index.other_model:
        return Finding("memory", "warn", describe_reindexing(index))
    return Finding(
        "memory",
        "ok",
        f"{index.documents} documents indexed with {index.model}, {index.dimensions} dimensions",
    )


def _agents(settings: Settings) -> Iterator[Finding]:
    """Check for definitions that differ between processes, and for agents without a process."""
    import asyncio

    from holdfast.routing.directory import Directory, configured_routing, read
    from holdfast.store import open_store
    from holdfast.store.pauses import describe_pause

    async def read_directory() -> Directory:
        async with open_store(settings.database) as store:
            return await read(store, configured_routing(settings))

    try:
        directory = asyncio.run(read_directory())
    except HoldfastError as error:
        yield Finding("agents", "fail", str(error))
        return
    yield from (Finding("agents", "warn", conflict) for conflict in directory.conflicts)
    for pause in directory.paused.pauses:
        yield Finding("paused", "warn", describe_pause(pause))
    unserved = sorted({*directory.routing.lanes} - {*directory.servers})
    if directory.entries and unserved:
        yield Finding("agents", "warn", f"no running process serves {', '.join(unserved)}")
    elif not directory.conflicts:
        running = ", ".join(sorted(directory.servers))
        yield Finding(
            "agents",
            "ok",
            f"running processes serve {running}" if running else "no process is running",
        )


def _extras(settings: Settings) -> Iterator[Finding]:
    """List missing extras; a failure if the settings need one."""
    from holdfast.channels import BUILT_IN, is_wanted
    from holdfast.settings.extras import EXTRAS, is_missing, remedy

    wanted = {
        **{name: is_wanted(settings, name) for name in BUILT_IN},
        "llm": any(table.kind == "llm" for table in settings.agents.values()),
        "memory": any(table.memory for table in settings.agents.values()),
        "oidc": bool(settings.oidc_issuer),
    }
    for extra in filter(is_missing, EXTRAS):
        state: Literal["ok", "fail"] = "fail" if wanted.get(extra) else "ok"
        yield Finding(f"extra {extra}", state, f"not installed: {remedy(extra)}")


def _timescale(server: Facts) -> Finding:
    if server.has_hypertable:
        return Finding(
            "TimescaleDB", "ok", f"version {server.timescale}, the history is a hypertable"
        )
    if server.timescale is not None or (
        server.timescale_available is not None and server.timescale_loaded
    ):
        version = server.timescale or server.timescale_available
        return Finding(
            "TimescaleDB",
            "ok",
            f"version {version} could be used: run holdfast migrate --timescale",
        )
    if server.timescale_available is not None:
        how = (
            "add timescaledb to shared_preload_libraries, restart the server,"
            " run holdfast migrate --timescale"
        )
        return Finding(
            "TimescaleDB", "ok", f"version {server.timescale_available} could be used: {how}"
        )
    return Finding("TimescaleDB", "ok", "not installed; the history is a plain table")


def _pgvector(server: Facts) -> Finding:
    if server.pgvector is not None:
        return Finding("pgvector", "ok", f"version {server.pgvector}")
    if server.pgvector_available is not None:
        remedy = "`create extension vector`, then `select agent.enable_vectors()`"
        return Finding(
            "pgvector",
            "warn",
            f"not in use, memory searches by words alone; as superuser: {remedy}",
        )
    return Finding("pgvector", "ok", "not installed; memory searches by words alone")


def _clock(server: Facts) -> Finding:
    assert server.ahead is not None
    seconds = server.ahead.total_seconds()
    state: Literal["ok", "warn", "fail"] = "ok"
    if abs(server.ahead) > SKEW_WARN:
        state = "fail" if abs(server.ahead) > SKEW_FAIL else "warn"
    return Finding(
        "clock",
        state,
        f"the database is {abs(seconds):.3f} s {'ahead' if seconds > 0 else 'behind'}",
    )


def _pool(server: Facts, settings: Settings, agents: int) -> Finding:
    assert server.connections_allowed is not None
    assert server.connections_used is not None
    free = server.connections_allowed - server.connections_used
    need = settings.pool_size(settings.workers, agents) + SESSIONS_BESIDE_POOL
    detail = f"a process needs up to {need}, {free} of {server.connections_allowed} are free"
    if need > server.connections_allowed:
        return Finding(
            "connections",
            "fail",
            f"{detail}; lower `connections` or `workers`, or raise max_connections",
        )
    return Finding("connections", "ok" if need <= free else "warn", detail)


def _direct(settings: Settings) -> Finding:
    from holdfast.store.facts import is_same_session

    try:
        if is_same_session(settings.database, settings.database_direct):
            return Finding("direct session", "ok", "keeps its locks, and others see them")
    except HoldfastError as error:
        return Finding("direct session", "fail", str(error))
    return Finding(
        "direct session",
        "fail",
        "database_direct is another database, or leads through a pooler",
    )


def _tokens() -> Finding:
    """Check the form of Slack's tokens; never show their values."""
    from holdfast.settings import SLACK_TOKENS, slack_tokens

    tokens = slack_tokens()
    wrong = [
        f"{name} should begin with {SLACK_TOKENS[name]}"
        for name in tokens
        if not _fits(tokens[name], name)
    ]
    if wrong:
        return Finding("tokens", "warn", "; ".join(wrong))
    return Finding(
        "tokens", "ok", f"set: {', '.join(tokens)}" if tokens else "no Slack token is set"
    )


def _channels(settings: Settings) -> Iterator[Finding]:
    """Ask the platform of each configured channel, even before there is a database."""
    from holdfast.channels import BUILT_IN, configured_channels, incomplete_channels
    from holdfast.settings.extras import EXTRAS, is_missing

    # Missing extras have lines of their own.
    absent = [extra for extra in EXTRAS if is_missing(extra)]
    try:
        channels = list(configured_channels(settings, cast("Store", _NoStore()), absent))
    except HoldfastError as error:
        yield Finding("channels", "fail", str(error))
        return
    known = [*absent, *(channel.name for channel in channels)]
    for name, problem in incomplete_channels(known).items():
        yield Finding(BUILT_IN[name][0], "fail", problem)
    for channel in channels:
        yield from _channel(channel)


def _gaps(settings: Settings) -> Iterator[Finding]:
    """Report the last gap of each channel, and how many messages it brought."""
    import asyncio

    from holdfast.channels import BUILT_IN
    from holdfast.channels.watermark import Gap, Watermarks
    from holdfast.settings.channels import installed_channels
    from holdfast.store import open_store

    async def read_gaps() -> dict[str, Gap | None]:
        async with open_store(settings.database) as store:
            known = {name: title for name, (title, _) in BUILT_IN.items()}
            titles = dict.fromkeys(installed_channels()) | known
            return {
                title or name: await Watermarks(store, name).last_gap()
                for name, title in titles.items()
            }

    try:
        gaps = asyncio.run(read_gaps())
    except HoldfastError as error:
        yield Finding("gaps", "fail", str(error))
        return
    for title, gap in gaps.items():
        if gap is not None:
            since = f" since {gap.since:%Y-%m-%d %H:%M:%S}" if gap.since else ""
            detail = f"{gap.messages} messages{since}, closed {gap.closed_at:%Y-%m-%d %H:%M:%S} UTC"
            yield Finding(f"{title} gap", "ok", detail)


class _NoStore:
    """Stands for the store of a channel that only checks its platform."""

    def __getattr__(self, name: str) -> object:
        raise HoldfastError(f"a check of a channel needs no database, but asked for {name}")


def _channel(channel: Channel) -> Iterator[Finding]:
    import asyncio

    return (Finding(*line) for line in asyncio.run(channel.check()))


def _fits(token: str, name: str) -> bool:
    from holdfast.settings import SLACK_TOKENS

    return token.startswith(SLACK_TOKENS[name])


def _load_app(settings: Settings) -> tuple[AgentHarness | None, Finding]:
    """Load the app and its agents, as a start does. Returns no app if it fails or has no agents."""
    from holdfast.app import AgentHarness
    from holdfast.cli.agent_builder import add_agents
    from holdfast.cli.app_loader import load_app

    try:
        app = load_app(settings.app) if settings.app else AgentHarness()
        is_bare = not app.agents and not settings.agents
        add_agents(app, settings)
    except HoldfastError as error:
        return None, Finding("app", "fail", str(error))
    if not is_bare:
        return app, Finding("app", "ok", f"agents {', '.join(app.agents)}")
    if settings.app:
        return None, Finding("app", "warn", f"{settings.app} has no agents")
    return None, Finding("app", "ok", "none; the echo agent answers")


def _app(app: AgentHarness, settings: Settings) -> Iterator[Finding]:
    yield from _sandbox(app, settings)
    for channel in app.channels.values():
        yield from _channel(channel)


def _sandbox(app: AgentHarness, settings: Settings) -> Iterator[Finding]:
    from holdfast.cli.hardening import sandboxes, unsandboxed_agents

    names = sandboxes(app)
    if problems := unsandboxed_agents(app, settings):
        yield Finding("sandbox", "warn", "; ".join(problems))
    elif names:
        yield Finding("sandbox", "ok", ", ".join(f"{id_} in {name}" for id_, name in names.items()))


def _mcp_servers(settings: Settings) -> Iterator[Finding]:
    """Start or call each configured MCP server once."""
    import asyncio

    from holdfast.cli.agent_builder import mcp_server

    for name, table in settings.mcp.items():
        try:
            tools = asyncio.run(mcp_server(name, table, settings).check())
        except HoldfastError as error:
            yield Finding(f"MCP server {name}", "fail", str(error))
        else:
            found = f"tools {', '.join(tools)}" if tools else "no tools"
            state: Literal["ok", "warn"] = "ok" if tools else "warn"
            yield Finding(f"MCP server {name}", state, f"answers, {found}")


def _home(settings: Settings) -> Finding:
    home = settings.home
    if not home.exists():
        return Finding("home", "ok", f"{home} does not exist; the first start creates it")
    if not home.is_dir() or not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return Finding("home", "fail", f"{home} is not a writable folder")
    if problems := exposed_files_problem(settings):
        return Finding("home", "warn", "; ".join(problems))
    return Finding("home", "ok", f"{home} is private")
