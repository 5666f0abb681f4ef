"""Help texts: commands in groups, examples, and a hint for misplaced options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from typer.core import TyperGroup

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

GROUPS = {
    "Run": ("up", "work", "serve", "demo"),
    "Talk": ("send", "chat", "tail", "stop", "schedule"),
    "Look": ("status", "agents", "history", "audit", "doctor", "prove"),
    "Mend": ("dead", "replay", "pause", "resume"),
    "Set up": (
        "init",
        "migrate",
        "backup",
        "move",
        "import",
        "login",
        "token",
        "slack",
        "pairing",
        "people",
        "memory",
    ),
}
"""Headings and their commands; a command without a heading is listed last."""

EXAMPLES = """\b
Examples:
  holdfast up                             run all on SQLite, with the echo agent
  holdfast up --app my_app:app            run your own agents
  holdfast send "@coder hello" --wait     ask an agent and print its answer
  holdfast chat                           talk to the agents at this terminal
  holdfast dead list --agent coder        list messages that could not be answered
  holdfast dead retry 42                  try one of them again
"""


class GroupedHelp(TyperGroup):
    """A command group that lists its commands under the headings of GROUPS."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        known = {name: command for name, command in self.commands.items() if not command.hidden}
        rest = [name for name in known if not any(name in names for names in GROUPS.values())]
        # The second column gets the width beside the longest name and the margins.
        width = formatter.width - 6 - max(map(len, known))
        for title, names in {**GROUPS, "Further": tuple(rest)}.items():
            rows = [
                (name, known[name].get_short_help_str(width)) for name in names if name in known
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def misplaced_option(group: Any, arguments: Sequence[str]) -> str | None:
    """Return a hint if an option of a command stands before the command, else None."""
    first = next(iter(arguments), "")
    name = first.partition("=")[0]
    if not name.startswith("--") or name not in set(_options(group)):
        return None
    return f"options come after the command, as in `holdfast status {name} …`"


def _options(group: Any) -> Iterator[str]:
    """Yield the options of all commands."""
    for command in group.commands.values():
        if hasattr(command, "commands"):
            yield from _options(command)
        for parameter in command.params:
            yield from parameter.opts
