"""Every setting once, with its unit; the only reader of the environment and of holdfast.toml."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from dotenv import load_dotenv
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from holdfast.errors import HoldfastError

CONFIG_FILE = Path("holdfast.toml")


class Settings(BaseSettings):
    """A value comes from the command line, else HOLDFAST_<NAME>, else holdfast.toml, else the default here."""

    model_config = SettingsConfigDict(env_prefix="HOLDFAST_", env_ignore_empty=True, extra="forbid", frozen=True)

    home: Path = Path("~/.holdfast")
    """Folder of everything that is kept in files."""
    database: str = Field(default="", repr=False)
    """sqlite:///path or postgresql://…; by default holdfast.db in the home folder. May hold a password."""
    database_direct: str = Field(default="", repr=False)
    """The same database without a pooler between, for the one session per process that must last."""
    app: str = ""
    """module:name of the AgentHarness to run; the working directory is importable."""
    workers: int = Field(default=5, ge=1, le=10_000)
    """Turns of the inbox at once in one process."""
    deliveries: int = Field(default=16, ge=1, le=10_000)
    """Responses delivered at once by one process."""
    lease: timedelta = Field(default=timedelta(minutes=10), ge=timedelta(seconds=1))
    """How long a turn is held without a renewal."""
    max_attempts: int = Field(default=5, ge=1)
    """Attempts of a message that came by the API or a channel other than Slack."""
    retry_first: timedelta = timedelta(seconds=2)
    """Shortest wait before a failed turn is tried again."""
    retry_most: timedelta = timedelta(minutes=5)
    """Longest wait before a failed turn is tried again."""
    poll: timedelta = Field(default=timedelta(seconds=60), ge=timedelta(milliseconds=10))
    """How often to look without being woken; the safety net under the signals."""
    poll_jitter: timedelta = timedelta(seconds=15)
    """By how much a look may come earlier or later, so that a fleet does not look at once."""
    start_stagger: timedelta = timedelta(0)
    """A random time up to this before the first look; for fleets."""
    grace: timedelta = timedelta(seconds=30)
    """How long running turns may go on after a stop was asked for."""
    sweep_every: timedelta = Field(default=timedelta(seconds=60), ge=timedelta(milliseconds=10))
    """How often to look for what is expired or old."""
    expire_after: timedelta = timedelta(hours=24)
    """A message that nobody took for this long is a dead letter."""
    unfetched_after: timedelta = timedelta(days=7)
    """A response that nobody fetched for this long is discarded."""
    dedup_window: timedelta = timedelta(days=7)
    """How long the id of a finished message is remembered."""
    keep_history: timedelta | None = None
    """How long finished events are kept; by default 24 hours on SQLite, for ever on PostgreSQL. Never a dead letter."""

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @model_validator(mode="before")
    @classmethod
    def _drop_unset(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value is not None}

    @model_validator(mode="after")
    def _complete(self) -> Settings:
        database = self.database or f"sqlite:///{self.home / 'holdfast.db'}"
        # Written past `frozen`, once, while the object is still being made.
        object.__setattr__(self, "database", database)
        object.__setattr__(self, "database_direct", self.database_direct or database)
        if "keep_history" not in self.model_fields_set and database.startswith("sqlite:"):
            object.__setattr__(self, "keep_history", timedelta(hours=24))
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load(*, config: Path | None = None, **given: object) -> Settings:
    """The settings of this process; what is given and not None wins over every other place."""
    # First of all, and into the environment itself: libpq, Slack's libraries and the user's own code read it there.
    load_dotenv(Path(".env"))
    if config is not None and not config.is_file():
        raise HoldfastError(f"there is no configuration file {config}")

    class Loaded(Settings):
        model_config = SettingsConfigDict(toml_file=config or CONFIG_FILE)

    try:
        return Loaded(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        raise HoldfastError(f"settings: {_first_problem(error)}") from error
    except ValueError as error:
        raise HoldfastError(f"{config or CONFIG_FILE} cannot be read: {' '.join(str(error).split())}") from error


def sqlite_path(url: str) -> Path | None:
    """The file a database URL names, None for PostgreSQL; anything else is refused."""
    if url.startswith(("postgresql://", "postgres://")):
        return None
    scheme, path = url[: len("sqlite:///")], url[len("sqlite:///") :]
    if scheme != "sqlite:///" or path in ("", ":memory:"):
        # The URL itself is not repeated: a mistyped one may hold a password.
        raise HoldfastError("a database URL is sqlite:///path/to/file.db or postgresql://user:password@host/database")
    return Path(path).expanduser()


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
