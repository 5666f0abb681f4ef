"""Keeping programs and people apart from what this process holds: memory, files, and sandboxes of agents."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from holdfast.telemetry import OPEN_TO_OTHERS
from holdfast.telemetry.logs import Entry

if TYPE_CHECKING:
    from holdfast.app import AgentHarness
    from holdfast.settings import Settings

log = logging.getLogger(__name__)

PRIVATE = 0o077
"""The umask of a process that holds secrets: what it makes is its owner's alone."""


def confine(settings: Settings) -> None:
    """Close this process, and the files that it makes, to others."""
    from holdfast.agents.supervisor import SET_DUMPABLE, prctl

    os.umask(PRIVATE)
    if not settings.debuggable:
        # Else any program of the same user can read our environment and memory in /proc, or trace us.
        prctl(SET_DUMPABLE, 0)


def warn_of_exposure(harness: AgentHarness, settings: Settings) -> None:
    for problem in (*unsandboxed_agents(harness, settings), *exposed_files_problem(settings)):
        log.warning(Entry(OPEN_TO_OTHERS, detail=problem))


def sandboxes(harness: AgentHarness) -> dict[str, str]:
    """Name the sandbox of each command agent."""
    from holdfast.agents.command import CommandAgent

    return {
        id_: agent.sandbox.name
        for id_, agent in harness.agents.items()
        if isinstance(agent, CommandAgent)
    }


def unsandboxed_agents(harness: AgentHarness, settings: Settings) -> list[str]:
    """Describe command agents whose programs can read what the worker can."""
    free = [id_ for id_, name in sandboxes(harness).items() if name == "none"]
    if not free:
        return []
    from holdfast.agents.sandbox import bubblewrap_problem

    problem = bubblewrap_problem()
    remedy = (
        'set sandbox = "auto"' if problem is None else f"bubblewrap does not work here: {problem}"
    )
    return [
        f"command agents without a sandbox can read the tokens and the database in {settings.home}:"
        f" {', '.join(free)}; {remedy}"
    ]


def exposed_files_problem(settings: Settings) -> list[str]:
    """Describe files of ours that other users of the machine may read or write."""
    from holdfast.settings.secrets import exposed_paths

    names = " ".join(str(path) for path in exposed_paths(settings))
    return [f"others may look into {names}: chmod go= {names}"] if names else []
