"""Load the settings from options, environment, .env and holdfast.toml; the first one wins."""

from __future__ import annotations

from pathlib import Path

from dotenv import load_dotenv
from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict, SettingsError

from holdfast.errors import HoldfastError, WrongUsage
from holdfast.settings.explain import explain, join_keys, locate
from holdfast.settings.fields import Settings
from holdfast.settings.secret_files import read_named_secrets, read_secret_files

CONFIG_FILE = Path("holdfast.toml")


def load(*, config: Path | None = None, **given: object) -> Settings:
    """Load the settings of this process; values given here, unless None, win over all sources."""
    path = config or CONFIG_FILE
    if config is not None and not config.is_file():
        raise HoldfastError(
            f"there is no settings file {config}: `holdfast init --config {config}` writes one"
        )

    class FileSettings(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    wanted = {name: value for name, value in given.items() if value is not None}
    try:
        # Into the environment itself: libpq, Slack's libraries and the user's code read it there.
        load_dotenv(Path(".env"))
        read_secret_files()
        loaded = FileSettings(**wanted)  # type: ignore[arg-type]
        read_named_secrets(loaded)
        return loaded.name_source("--database") if "database" in wanted else loaded
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        # A given value is an option of the command, so a wrong one is wrong usage.
        kind = WrongUsage if problem["loc"][:1] and problem["loc"][0] in wanted else HoldfastError
        raise kind(explain(problem, Settings, path, wanted)) from error
    except SettingsError as error:
        raise HoldfastError(f"{error}; write a table in the environment as JSON") from error
    except (OSError, ValueError) as error:
        raise HoldfastError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def locate_setting(settings: Settings, *keys: str | int) -> str:
    """Return file, line and name of a setting, for errors found after loading."""
    path = settings.model_config.get("toml_file")
    return f"{locate(path, keys)}: {join_keys(keys)}" if isinstance(path, Path) else join_keys(keys)
