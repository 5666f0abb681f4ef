"""Read secrets from files: X_FILE names the file of variable X; systemd credentials by name.

They are hidden in logs and errors, and so are keys of providers that the environment holds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from holdfast.errors import HoldfastError
from holdfast.settings.channels import channel_variables
from holdfast.settings.environment import DATABASE_URL, variable_of
from holdfast.settings.fields import Settings
from holdfast.telemetry.redaction import hide

ENDING = "_FILE"
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""Variable in which systemd names the folder of a service's credentials."""
MAX_LENGTH = 65_536

_OTHERS = (DATABASE_URL, "LOGFIRE_TOKEN", "PGPASSWORD")
_PROVIDER_KEY = re.compile(r"\A[A-Z][A-Z0-9_]*_API_KEY")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")

_from_files: dict[str, str] = {}
"""Values that were read from files, by variable."""


def read_secret_files() -> None:
    """Read the secrets of Holdfast, channels and providers from files into the environment."""
    ours = [variable_of(name) for name, field in Settings.model_fields.items() if not field.repr]
    keys = [name for name in _named_files() if _PROVIDER_KEY.fullmatch(name)]
    _read_files([*ours, *channel_variables(), *_OTHERS, *keys])
    for name, path in _credentials():
        if not os.environ.get(name):
            os.environ[name] = _from_files[name] = _read(f"the credential {name}", path)
    for name, value in os.environ.items():
        if name in _OTHERS or _PROVIDER_KEY.fullmatch(name):
            hide(value)


def read_named_secrets(settings: Settings) -> None:
    """Read secrets of variables that settings name, such as `token_variable`, from files, too."""
    _read_files(_variables(settings))


def secret_files() -> list[Path]:
    """Return the files and folders that secrets were read from."""
    folder = os.environ.get(CREDENTIALS)
    files = [
        Path(os.environ[f"{name}{ENDING}"]).absolute()
        for name in _named_files()
        if name in _from_files
    ]
    return [*files, *([Path(folder)] if folder else [])]


def _read_files(names: Iterable[str]) -> None:
    for name in dict.fromkeys(names):
        path = os.environ.get(f"{name}{ENDING}")
        if not name or not path:
            continue
        if os.environ.get(name) and os.environ[name] != _from_files.get(name):
            raise HoldfastError(f"{name} and {name}{ENDING} are both set: keep one of them")
        os.environ[name] = _from_files[name] = _read(f"{name}{ENDING}", Path(path).expanduser())


def _read(what: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            value = file.read(MAX_LENGTH + 1).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise HoldfastError(f"{what}: cannot read {path}: {reason}") from error
    if not value or "\0" in value or len(value) > MAX_LENGTH:
        raise HoldfastError(f"{what}: {path} is empty, too long or contains a zero byte")
    hide(value)
    return value


def _named_files() -> list[str]:
    return [name.removesuffix(ENDING) for name in os.environ if name.endswith(ENDING)]


def _credentials() -> Iterator[tuple[str, Path]]:
    """Yield systemd credentials whose names look like variables; skip all others."""
    folder = os.environ.get(CREDENTIALS)
    if folder and Path(folder).is_dir():
        yield from (
            (path.name, path)
            for path in sorted(Path(folder).iterdir())
            if _NAME.fullmatch(path.name)
        )


def _variables(model: object) -> Iterator[str]:
    """Yield the variables named by a table or by tables inside it."""
    if isinstance(model, BaseModel):
        for name, value in model:
            if name.endswith("_variable"):
                yield str(value)
            elif name == "variables":
                yield from value
            else:
                yield from _variables(value)
    elif isinstance(model, dict | tuple):
        for value in model.values() if isinstance(model, dict) else model:
            yield from _variables(value)
