"""Secrets that stand in files: X_FILE names the file of variable X; systemd's credentials have names of variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from holdfast.errors import HoldfastError
from holdfast.settings.environment import DATABASE_URL, SLACK_TOKENS, variable_of
from holdfast.settings.fields import Settings

ENDING = "_FILE"
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""Variable in which systemd names the folder of a service's credentials."""
LONGEST = 65_536

_OTHERS = (DATABASE_URL, "LOGFIRE_TOKEN", "PGPASSWORD")
_PROVIDER_KEY = re.compile(r"\A[A-Z][A-Z0-9_]*_API_KEY")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")

_taken: dict[str, str] = {}
"""Values that were read from files, by the names of their variables."""


def read_secret_files() -> None:
    """Put secrets from files into the environment: those of Holdfast itself, of Slack and of providers."""
    ours = [variable_of(name) for name, field in Settings.model_fields.items() if not field.repr]
    keys = [name for name in _named_files() if _PROVIDER_KEY.fullmatch(name)]
    _take([*ours, *SLACK_TOKENS, *_OTHERS, *keys])
    for name, path in _credentials():
        if not os.environ.get(name):
            os.environ[name] = _taken[name] = _read(f"the credential {name}", path)


def read_named_secrets(settings: Settings) -> None:
    """Do the same for variables that settings name, such as `token_variable` and `variables`."""
    _take(_variables(settings))


def secret_files() -> list[Path]:
    """List the files and folders that secrets may have been read from."""
    folder = os.environ.get(CREDENTIALS)
    files = [
        Path(os.environ[f"{name}{ENDING}"]).absolute() for name in _named_files() if name in _taken
    ]
    return [*files, *([Path(folder)] if folder else [])]


def _take(names: Iterable[str]) -> None:
    for name in dict.fromkeys(names):
        path = os.environ.get(f"{name}{ENDING}")
        if not name or not path:
            continue
        if os.environ.get(name) and os.environ[name] != _taken.get(name):
            raise HoldfastError(f"{name} and {name}{ENDING} are both set: keep one of them")
        os.environ[name] = _taken[name] = _read(f"{name}{ENDING}", Path(path).expanduser())


def _read(what: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            value = file.read(LONGEST + 1).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise HoldfastError(f"{what}: {path} cannot be read: {reason}") from error
    if not value or "\0" in value or len(value) > LONGEST:
        raise HoldfastError(f"{what}: {path} is empty, too long or holds a zero byte")
    return value


def _named_files() -> list[str]:
    return [name.removesuffix(ENDING) for name in os.environ if name.endswith(ENDING)]


def _credentials() -> Iterator[tuple[str, Path]]:
    """List credentials whose names are those of variables; others are not for us."""
    folder = os.environ.get(CREDENTIALS)
    if folder and Path(folder).is_dir():
        yield from (
            (path.name, path)
            for path in sorted(Path(folder).iterdir())
            if _NAME.fullmatch(path.name)
        )


def _variables(model: object) -> Iterator[str]:
    """Find the variables that a table, or one inside of it, names."""
    if isinstance(model, BaseModel):
        for name, value in model:
            if name.endswith("_variable"):
                yield str(value)
            elif name == "variables":
                yield from value
            else:
                yield from _variables(value)
    elif isinstance(model, dict):
        for value in model.values():
            yield from _variables(value)
    elif isinstance(model, tuple):
        for value in model:
            yield from _variables(value)
