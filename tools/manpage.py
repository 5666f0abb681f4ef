"""Print the manual page of `holdfast`, made from the help of its commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from holdfast import __version__
from holdfast.cli import command_tree

HEAD = """.TH HOLDFAST 1 "" "holdfast {version}" "User Commands"
.SH NAME
holdfast \\- a durable runtime for chat agents
.SH SYNOPSIS
.B holdfast
.I COMMAND
.RI [ OPTIONS ]
.SH DESCRIPTION
Holdfast stores every message before it acknowledges it, gives it to one agent at a time per
conversation, and answers through a durable outbox. Options come after the command.
.SH COMMANDS
"""
TAIL = """.SH EXIT STATUS
0 done, 1 refused or failed, 2 wrong usage.
.SH ENVIRONMENT
.TP
.B HOLDFAST_DATABASE
sqlite:///path or postgresql://\\(hellip; the default is holdfast.db in the home folder.
.TP
.B HOLDFAST_HOME
Folder for files; the default is ~/.holdfast.
.TP
.B HOLDFAST_APP
module:name of the app to run.
"""


def manual() -> str:
    """Return the page in the format of man."""
    commands = "".join(_command("holdfast", command_tree()))
    return HEAD.format(version=__version__) + commands + TAIL


def _command(path: str, command: Any) -> Iterator[str]:
    """Yield the entries of a command and of those below it."""
    for name, child in sorted(getattr(command, "commands", {}).items()):
        if child.hidden:
            continue
        if hasattr(child, "commands"):
            yield from _command(f"{path} {name}", child)
        else:
            yield f".SS {_escape(f'{path} {name}')}\n{_escape(_text(child.help))}\n"
            yield from map(_parameter, (one for one in child.params if one.name != "help"))


def _parameter(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    title = ", ".join(names) if names[0].startswith("-") else names[0].upper()
    return f".TP\n.B {_escape(title)}\n{_escape(_text(getattr(parameter, 'help', '')))}\n"


def _text(text: str | None) -> str:
    return " ".join((text or "").replace("\b", "").split())


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    # A dot or an apostrophe begins a request.
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    sys.stdout.write(manual())
