"""`holdfast prove`: an app under faults, on a temporary store."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import asdict, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import AsJson, Config, load_settings, parse_duration
from holdfast.cli.printing import echo, print_json, print_table
from holdfast.errors import WrongUsage
from holdfast.telemetry.redaction import redact

if TYPE_CHECKING:
    from holdfast.testing.prove.plan import Plan
    from holdfast.testing.prove.proof import SeedReport

SHOWN = 10
"""Violations of a seed to print; `--json` has all."""


AppName = Annotated[
    str | None, typer.Option("--app", help="module:name of your AgentHarness (env HOLDFAST_APP)")
]
Server = Annotated[
    str,
    typer.Option(
        "--database", help="PostgreSQL server for temporary databases (default: SQLite files)"
    ),
]
Seeds = Annotated[int, typer.Option(help="Runs with faults.", min=1, max=10_000)]
FirstSeed = Annotated[int, typer.Option(help="The first seed.", min=0)]
Messages = Annotated[int, typer.Option(help="Messages per run.", min=1, max=10_000)]
Conversations = Annotated[int, typer.Option(help="People who write.", min=1, max=1000)]
WorkerProcesses = Annotated[int, typer.Option(help="Worker processes.", min=1, max=32)]
FaultTime = Annotated[str, typer.Option(help="Time with faults in each run.")]
Texts = Annotated[Path | None, typer.Option(help="File with the texts to send, one per line.")]
Recipient = Annotated[str | None, typer.Option(help="Agent or team to write to.")]


def prove(
    app: AppName = None,
    config: Config = None,
    database: Server = "",
    seeds: Seeds = 3,
    seed: FirstSeed = 1,
    messages: Messages = 40,
    conversations: Conversations = 8,
    workers: WorkerProcesses = 2,
    duration: FaultTime = "10s",
    texts: Texts = None,
    agent: Recipient = None,
    as_json: AsJson = False,
) -> None:
    """Run your app under faults and compare with an undisturbed run.

    Workers are killed, suspended and stopped, the database goes away, messages come twice and late.
    Nothing reaches a platform: tokens and schedules are left out. Exits with 1 if a message was
    lost, doubled or answered out of order, or if a finished step ran again."""
    from holdfast.testing.prove.plan import Plan

    plan = Plan(
        app=app or _configured_app(config),
        config=config,
        database=_check_database(database),
        texts=_lines(texts),
        agent=agent,
        messages=messages,
        conversations=conversations,
        workers=workers,
        duration=_positive(duration),
    )
    reports = asyncio.run(_prove(plan, range(seed, seed + seeds), quiet=as_json))
    if as_json:
        print_json([asdict(report) for report in reports])
    else:
        _print_end(reports, _command(plan, texts, duration))
    if any(report.violations for report in reports):
        raise typer.Exit(1)


def _configured_app(config: Path | None) -> str:
    settings = load_settings(config)
    if not settings.app and not settings.agents:
        raise WrongUsage("which app? give --app module:name")
    return settings.app


def _check_database(database: str) -> str:
    if database and not database.startswith(("postgresql://", "postgres://")):
        raise WrongUsage("--database names a PostgreSQL server; without it, SQLite files are used")
    return database


def _positive(text: str) -> timedelta:
    duration = parse_duration(text)
    if duration <= timedelta(0):
        raise WrongUsage("--duration must be longer than 0")
    return duration


def _lines(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"cannot read {path}: {error}") from None
    found = tuple(line for line in lines if line.strip())
    if not found:
        raise WrongUsage(f"{path} has no texts")
    return found


async def _prove(plan: Plan, seeds: range, *, quiet: bool) -> list[SeedReport]:
    from holdfast.testing.prove.proof import prove as run

    reports = []
    async for report in run(plan, seeds):
        reports.append(report)
        if not quiet:
            echo(_progress(report))
    return reports


def _progress(report: SeedReport) -> str:
    if not report.faults:
        return f"{_name(report)}: {report.messages} messages, {report.dead} dead letters"
    faults = ", ".join(f"{number} x {kind}" for kind, number in sorted(report.faults.items()))
    return f"{_name(report)}: {faults}: {'violations' if report.violations else 'sound'}"


def _name(report: SeedReport) -> str:
    return f"seed {report.seed}" if report.faults else "undisturbed"


def _command(plan: Plan, texts: Path | None, duration: str) -> str:
    """Return the command for one seed of a plan, with all options that are not the default."""
    shown = {"texts": texts, "duration": duration, "database": redact(plan.database)}
    words = [
        word
        for one in fields(plan)
        if (value := getattr(plan, one.name)) not in (one.default, "")
        for word in (f"--{one.name}", str(shown.get(one.name, value)))
    ]
    return shlex.join(["holdfast", "prove", *words, "--seeds", "1"])


def _print_end(reports: list[SeedReport], command: str) -> None:
    faulty = [report for report in reports if report.violations]
    for report in faulty:
        found = list(report.violations.all())
        echo(f"{_name(report)}:")
        for text in found[:SHOWN]:
            echo(f"  {text}")
        if len(found) > SHOWN:
            echo(f"  and {len(found) - SHOWN} more (--json prints all)")
    print_table(
        ("lost", "doubled", "out of order", "steps repeated", "dead", "effect unknown"),
        [_totals(reports)],
        empty="",
    )
    seeds = [report.seed for report in faulty if report.faults]
    if seeds:
        echo(f"try again: {command} --seed {seeds[0]}")


def _totals(reports: list[SeedReport]) -> tuple[str, ...]:
    violations = [report.violations for report in reports]
    numbers = (
        sum(len(one.lost) for one in violations),
        sum(len(one.doubled) for one in violations),
        sum(len(one.out_of_order) for one in violations),
        sum(len(one.steps_repeated) for one in violations),
        sum(report.dead for report in reports),
        sum(report.unknown for report in reports),
    )
    return tuple(map(str, numbers))
