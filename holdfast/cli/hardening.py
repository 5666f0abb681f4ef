"""Protect this process and its files from other programs and users of the machine."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from holdfast.telemetry import SECRETS_EXPOSED
from holdfast.telemetry.logs import Entry

if TYPE_CHECKING:
    from holdfast.app import AgentHarness
    from holdfast.settings import Settings

log = logging.getLogger(__name__)

PRIVATE = 0o077
"""Umask of a process that holds secrets: new files are readable by their owner alone."""


def confine(settings: Settings) -> None:
    """Deny others access to this process and to the files that it creates."""
    from holdfast.agents.supervisor import SET_DUMPABLE, prctl

    os.umask(PRIVATE)
    if not settings.debuggable:
        # Otherwise any program of the same user could read our memory in /proc, or trace us.
        prctl(SET_DUMPABLE, 0)


def warn_of_exposure(harness: AgentHarness, settings: Settings) -> None:
    """Log a warning for each way in which others can read our secrets."""
    for problem in (*unsandboxed_agents(harness, settings), *exposed_files_problem(settings)):
        log.warning(Entry(SECRETS_EXPOSED, detail=problem))


def sandboxes(harness: AgentHarness) -> dict[str, str]:
    """Return the name of each command agent's sandbox."""
    from holdfast.agents.acp import AcpAgent
    from holdfast.agents.command import CommandAgent

    return {
        id_: agent.sandbox.name
        for id_, agent in harness.agents.items()
        if isinstance(agent, CommandAgent | AcpAgent)
    }


def unsandboxed_agents(harness: AgentHarness, settings: Settings) -> list[str]:
    """Describe the command agents without a sandbox; an empty list if there are none."""
    free = [id_ for id_, name in sandboxes(harness).items() if name == "none"]
    if not free:
        return []
    from holdfast.agents.sandbox import bubblewrap_problem

    problem = bubblewrap_problem()
    remedy = (
        'set sandbox = "auto"' if problem is None else f"bubblewrap does not work here: {problem}"
    )
    if settings.workspace_folder.resolve().is_relative_to(settings.home.resolve()):
        remedy += "; their workspaces lie inside of it: set workspaces to a folder elsewhere"
    return [
        f"command agents without a sandbox can read the tokens and the database in {settings.home}:"
        f" {', '.join(free)}; {remedy}"
    ]


def exposed_files_problem(settings: Settings) -> list[str]:
    """Describe our files that other users can read or write; an empty list if there are none."""
    from holdfast.settings.secrets import exposed_paths

    names = " ".join(str(path) for path in exposed_paths(settings))
    return [f"other users can open {names}; run: chmod go= {names}"] if names else []
