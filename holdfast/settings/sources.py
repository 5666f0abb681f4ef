"""Reads the settings: options, environment, .env and holdfast.toml, in this order of weight."""

from __future__ import annotations

from pathlib import Path

from dotenv import load_dotenv
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict, SettingsError

from holdfast.errors import HoldfastError, WrongUsage
from holdfast.settings.explain import dotted, explain, place
from holdfast.settings.fields import Settings
from holdfast.settings.secret_files import read_named_secrets, read_secret_files

CONFIG_FILE = Path("holdfast.toml")


def load(*, config: Path | None = None, **given: object) -> Settings:
    """The settings of this process; what is given and not None wins over every other place."""
    path = config or CONFIG_FILE
    if config is not None and not config.is_file():
        raise HoldfastError(
            f"there is no configuration file {config}: `holdfast init --config {config}` writes one"
        )

    class Loaded(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    wanted = {name: value for name, value in given.items() if value is not None}
    try:
        # First of all, and into the environment itself: libpq, Slack's libraries and the user's own code read it there.
        load_dotenv(Path(".env"))
        read_secret_files()
        loaded = Loaded(**wanted)  # type: ignore[arg-type]
        read_named_secrets(loaded)
        return loaded.name_source("--database") if "database" in wanted else loaded
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        # A value that was given is an option of the command.
        kind = WrongUsage if problem["loc"][:1] and problem["loc"][0] in wanted else HoldfastError
        raise kind(explain(problem, Settings, path, wanted)) from error
    except SettingsError as error:
        raise HoldfastError(f"{error}; a table in the environment is written as JSON") from error
    except (OSError, ValueError) as error:
        raise HoldfastError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def locate_setting(settings: Settings, *keys: str | int) -> str:
    """File, line and name of a setting, for who finds later that it cannot work."""
    path = settings.model_config.get("toml_file")
    return f"{place(path, keys)}: {dotted(keys)}" if isinstance(path, Path) else dotted(keys)
