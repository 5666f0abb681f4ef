"""The commands of `holdfast`.

Each command imports its heavy modules when it runs, so that `--help` is fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated

import typer
from typer.core import TyperGroup

from holdfast import __version__
from holdfast.cli.access import login, token
from holdfast.cli.agents import agents
from holdfast.cli.audit import audit
from holdfast.cli.chat import chat
from holdfast.cli.database import backup, init, migrate
from holdfast.cli.dead import dead
from holdfast.cli.demo import demo
from holdfast.cli.doctor import doctor
from holdfast.cli.help import EXAMPLES, HELP_OPTIONS, GroupedHelp, misplaced_option
from holdfast.cli.history import history, replay
from holdfast.cli.imports import imports
from holdfast.cli.memory import memory
from holdfast.cli.move import move
from holdfast.cli.pairing import pairing
from holdfast.cli.pauses import pause, resume
from holdfast.cli.people import people
from holdfast.cli.printing import echo
from holdfast.cli.prove import prove
from holdfast.cli.schedule import schedule
from holdfast.cli.send import send
from holdfast.cli.slack import slack
from holdfast.cli.status import status
from holdfast.cli.stop import stop
from holdfast.cli.tail import tail
from holdfast.cli.up import serve, up, work
from holdfast.errors import HoldfastError, WrongUsage

app = typer.Typer(
    name="holdfast",
    cls=GroupedHelp,
    invoke_without_command=True,
    context_settings=HELP_OPTIONS,
    epilog=EXAMPLES,
    pretty_exceptions_enable=False,
    # Plain text: importing rich for the help would take longer than all other imports.
    rich_markup_mode=None,
)
commands: list[Callable[..., None]]
commands = [
    up,
    work,
    serve,
    migrate,
    init,
    backup,
    move,
    send,
    chat,
    tail,
    stop,
    status,
    agents,
    history,
    replay,
    audit,
    doctor,
    prove,
    pause,
    resume,
    login,
]
for command in commands:
    app.command()(command)
# The name of `stop` until 0.6.
app.command("cancel", hidden=True)(stop)
app.add_typer(dead, name="dead")
app.add_typer(token, name="token")
app.add_typer(memory, name="memory")
app.add_typer(people, name="people")
app.add_typer(pairing, name="pairing")
app.add_typer(imports, name="import")
app.add_typer(schedule, name="schedule")
app.add_typer(slack, name="slack")
app.add_typer(demo, name="demo")


@cache
def command_tree() -> TyperGroup:
    """Return all commands as one object. Building it takes 25 ms."""
    tree = typer.main.get_command(app)
    assert isinstance(tree, TyperGroup)
    return tree


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with 0, 1 if it was refused or failed, or 2 for wrong usage.

    An error is one line on stderr."""
    try:
        sys.exit(command_tree()(arguments, prog_name="holdfast", standalone_mode=False) or 0)
    except HoldfastError as error:
        sys.exit(_print_error(str(error), 2 if isinstance(error, WrongUsage) else 1))
    except BaseExceptionGroup as group:
        sys.exit(_print_error(str(_first_refusal(group)), 1))
    except typer.TyperException as error:
        given = sys.argv[1:] if arguments is None else arguments
        hint = misplaced_option(command_tree(), given)
        found = error.format_message().replace("Value error, ", "")
        message = hint or f"{found or 'a command is missing'} (see --help)"
        sys.exit(_print_error(message, error.exit_code))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(_print_error("interrupted", 1))
    except BrokenPipeError:
        # The reader closed the pipe; without this, the flush at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _print_version(asked: bool) -> None:
    if asked:
        echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A durable runtime for chat agents."""
    if context.invoked_subcommand is None:
        echo(context.get_help())


def _first_refusal(group: BaseExceptionGroup[BaseException]) -> HoldfastError:
    """Unwrap the first error of ours from task groups; raise the group if it holds any other."""
    refusals, faults = group.split(HoldfastError)
    if faults is not None or refusals is None:
        raise group
    first: BaseException = refusals
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, HoldfastError)
    return first


def _print_error(message: str, code: int) -> int:
    """Print an error as one line without secrets. Returns the exit code."""
    from holdfast.telemetry.redaction import redact

    echo(f"holdfast: {redact(' '.join(message.split()))}", err=True)
    return code
