"""The commands. Everything heavy is imported by the command that needs it, so that --help is quick."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli.access import login, token
from holdfast.cli.agents import agents
from holdfast.cli.audit import audit
from holdfast.cli.database import backup, init, migrate
from holdfast.cli.dead import dead, history, replay
from holdfast.cli.doctor import doctor
from holdfast.cli.help import EXAMPLES, HELP_OPTIONS, GroupedHelp, misplaced_option
from holdfast.cli.memory import memory
from holdfast.cli.people import people
from holdfast.cli.printing import echo
from holdfast.cli.send import send
from holdfast.cli.slack import demo, slack
from holdfast.cli.status import status
from holdfast.cli.tail import cancel, tail
from holdfast.cli.up import serve, up, work
from holdfast.errors import HoldfastError, WrongUsage

app = typer.Typer(
    name="holdfast",
    cls=GroupedHelp,
    invoke_without_command=True,
    context_settings=HELP_OPTIONS,
    epilog=EXAMPLES,
    pretty_exceptions_enable=False,
    # Help in plain text: the rich one takes longer to import than everything else together.
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
    send,
    tail,
    cancel,
    status,
    agents,
    history,
    replay,
    audit,
    doctor,
]
commands.append(login)
for command in commands:
    app.command()(command)
app.add_typer(dead, name="dead")
app.add_typer(token, name="token")
app.add_typer(memory, name="memory")
app.add_typer(people, name="people")
app.add_typer(slack, name="slack")
app.add_typer(demo, name="demo")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0, 1 when it was refused or failed, 2 for wrong usage; an error is one line."""
    try:
        sys.exit(app(args=arguments, prog_name="holdfast", standalone_mode=False) or 0)
    except HoldfastError as error:
        sys.exit(_complain(str(error), 2 if isinstance(error, WrongUsage) else 1))
    except BaseExceptionGroup as group:
        sys.exit(_complain(str(_refusal(group)), 1))
    except typer.TyperException as error:
        hint = misplaced_option(
            typer.main.get_command(app), sys.argv[1:] if arguments is None else arguments
        )
        message = hint or f"{error.format_message() or 'a command is missing'} (see --help)"
        sys.exit(_complain(message, error.exit_code))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(_complain("interrupted", 1))
    except BrokenPipeError:
        # Whoever read has enough; nothing is left to be flushed to them at exit.
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


def _refusal(group: BaseExceptionGroup[BaseException]) -> HoldfastError:
    """What task groups wrapped; anything but a refusal of ours is a fault and keeps its traceback."""
    refusals, faults = group.split(HoldfastError)
    if faults is not None or refusals is None:
        raise group
    first: BaseException = refusals
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, HoldfastError)
    return first


def _complain(message: str, code: int) -> int:
    from holdfast.telemetry.redaction import redact

    echo(f"holdfast: {redact(' '.join(message.split()))}", err=True)
    return code
