"""Every setting once, with its unit; the only reader of the environment and of holdfast.toml."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

# Where logfire is installed, the first pydantic model would import all of it: a third of a second before any work.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "logfire-plugin")
# A collector that is away would hold up the end of the process for as long as this, which is ten seconds by itself.
os.environ.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", "2")

from dotenv import load_dotenv
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from holdfast.errors import HoldfastError

SLACK_TOKENS = {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-", "SLACK_SIGNING_SECRET": ""}
"""Variables that Slack's own documents name, and how their values begin."""
CONFIG_FILE = Path("holdfast.toml")
PREFIX = "HOLDFAST_"
FOREVER = "forever"
EXPORTERS = ("LOGFIRE_TOKEN", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
_UNITS |= {"d": 86_400, "day": 86_400, "w": 604_800, "week": 604_800}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_AMOUNT = re.compile(rf"({_NUMBER}) *([a-z]+)")
_DURATION = re.compile(rf"{_NUMBER}|{_AMOUNT.pattern}(?: *{_AMOUNT.pattern})*")
_USER = r"(?:[^:@/?#\s]*(?::[^@/?#\s]*)?@)?"
_HOST = r"(?:\[[^\]\s]*\]|[^:@/?#,\[\]\s]*)(?::[0-9]*)?"
_POSTGRES = re.compile(rf"postgres(?:ql)?://{_USER}{_HOST}(?:,{_HOST})*(?:/[^@?#\s]*)?(?:\?\S*)?")
_OPTIONS = {"api_port": "--port", "api_host": "--host"}


def duration(value: object) -> timedelta:
    """A duration from "30s", "10 min", "1h 30min" or a number of seconds."""
    if isinstance(value, timedelta):
        return value
    text = "" if isinstance(value, bool) else str(value).strip().lower()
    try:
        if not _DURATION.fullmatch(text):
            raise ValueError
        amounts = _AMOUNT.findall(text) or [(text, "s")]
        return timedelta(seconds=sum(float(number) * _unit(unit) for number, unit in amounts))
    except (ValueError, KeyError, OverflowError):
        raise ValueError('a duration is a text like "30s", "10 min" or "24h", or a number of seconds') from None


def duration_text(value: timedelta) -> str:
    """The shortest text that `duration` reads as this value."""
    units = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1)))
    for unit, one in units:
        # One day reads better as 24h.
        if value and value % one == timedelta(0) and (unit != "d" or value > one):
            return f"{value // one}{unit}"
    return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"


def _unit(name: str) -> float:
    return _UNITS[name if name in _UNITS else name.removesuffix("s")]


def _or_forever(value: object) -> timedelta | None:
    return None if value is None or value == FOREVER else duration(value)


Duration = Annotated[timedelta, BeforeValidator(duration)]


class Settings(BaseSettings):
    """A value comes from the command line, else HOLDFAST_<NAME>, else holdfast.toml, else the default here."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    # The text below a field is what `holdfast init` writes; an example stands where the default is no value.
    home: Path = Path("~/.holdfast")
    """Folder of everything that is kept in files."""
    database: str = Field(default="", repr=False, examples=["sqlite:///~/.holdfast/holdfast.db"])
    """sqlite:///path or postgresql://…; by default holdfast.db in the home folder. May hold a password."""
    database_direct: str = Field(default="", repr=False, examples=["postgresql://user@host/database"])
    """The same database without a pooler between, for the one session per process that must last."""
    connections: int = Field(default=8, ge=1, le=1000)
    """Connections of one process to PostgreSQL, beside the direct one."""
    app: str = Field(default="", examples=["my_module:app"])
    """module:name of the AgentHarness to run; the working directory is importable. By default the echo agent."""
    workers: int = Field(default=5, ge=1, le=10_000)
    """Turns of the inbox at once in one process."""
    deliveries: int = Field(default=16, ge=1, le=10_000)
    """Responses delivered at once by one process."""
    lease: Duration = Field(default=timedelta(minutes=10), ge=timedelta(seconds=1))
    """How long a turn is held without a renewal."""
    max_attempts: int = Field(default=5, ge=1)
    """Attempts of a message that came by the API or a channel other than Slack."""
    retry_first: Duration = timedelta(seconds=2)
    """Shortest wait before a failed turn is tried again."""
    retry_most: Duration = timedelta(minutes=5)
    """Longest wait before a failed turn is tried again."""
    poll: Duration = Field(default=timedelta(seconds=60), ge=timedelta(milliseconds=10))
    """How often to look without being woken; the safety net under the signals."""
    poll_jitter: Duration = timedelta(seconds=15)
    """By how much a look may come earlier or later, so that a fleet does not look at once."""
    start_stagger: Duration = timedelta(0)
    """A random time up to this before the first look; 30s suits a fleet."""
    grace: Duration = timedelta(seconds=30)
    """How long running turns may go on after a stop was asked for."""
    sweep_every: Duration = Field(default=timedelta(seconds=60), ge=timedelta(milliseconds=10))
    """How often to look for what is expired or old."""
    expire_after: Duration = timedelta(hours=24)
    """A message that nobody took for this long is a dead letter."""
    unfetched_after: Duration = timedelta(days=7)
    """A response that nobody fetched for this long is discarded."""
    dedup_window: Duration = timedelta(days=7)
    """How long the id of a finished message is remembered."""
    keep_history: Annotated[timedelta | None, BeforeValidator(_or_forever)] = Field(default=None, examples=["24h"])
    """How long finished events are kept; by default 24h on SQLite, "forever" on PostgreSQL. Never a dead letter."""
    api_host: str = "127.0.0.1"
    """Address at which the API listens."""
    api_port: int = Field(default=3777, ge=0, le=65_535)
    """Port of the API; 0 takes a free one."""
    metrics_port: int | None = Field(default=None, ge=0, le=65_535, examples=[9464])
    """Port at which `holdfast work` serves /metrics, for which it has no API; by default none."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """From where on a line on stderr is worth it: debug, info, warning or error."""
    log_format: Literal["text", "json"] = "text"
    """How lines on stderr are written: text for people, json for programs."""
    trace_service: str = Field(default="", examples=["holdfast"])
    """Name under which spans and metrics go to what LOGFIRE_TOKEN or OTEL_EXPORTER_OTLP_ENDPOINT names."""
    trace_ratio: float = Field(default=0.01, ge=0, le=1)
    """Share of the turns that have spans, from 0 to 1, beside one in every second."""

    @property
    def exports_as(self) -> str | None:
        """Name under which spans and metrics are sent, None where nobody takes them."""
        taken = any(os.environ.get(name) for name in EXPORTERS)
        return self.trace_service or os.environ.get("OTEL_SERVICE_NAME") or "holdfast" if taken else None

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
    path = config or CONFIG_FILE
    if config is not None and not config.is_file():
        raise HoldfastError(f"there is no configuration file {config}: `holdfast init --config {config}` writes one")

    class Loaded(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    wanted = {name: value for name, value in given.items() if value is not None}
    try:
        # First of all, and into the environment itself: libpq, Slack's libraries and the user's own code read it there.
        load_dotenv(Path(".env"))
        return Loaded(**wanted)  # type: ignore[arg-type]
    except ValidationError as error:
        raise HoldfastError(_explain(error.errors(include_url=False)[0], path, wanted)) from error
    except (OSError, ValueError) as error:
        raise HoldfastError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def descriptions() -> dict[str, str]:
    """The text below each field, read from this file when somebody asks: as a start-up cost it would be too much."""
    import ast
    import inspect

    [made] = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(made, ast.ClassDef)
    return {
        field.target.id: text.value.value
        for field, text in pairwise(made.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def value_text(name: str) -> str:
    """A setting's default as TOML, or its example where the default is no value."""
    field = Settings.model_fields[name]
    value = field.examples[0] if field.examples else field.default
    if isinstance(value, timedelta):
        value = duration_text(value)
    return str(value) if isinstance(value, int | float) else f'"{value}"'


def commented() -> str:
    """A holdfast.toml in which every setting stands as a comment."""
    lines = [
        "# Settings of Holdfast. Remove the # before a line to change it; it shows the default, or an example.",
        '# A duration is a text like "30s", "10 min" or "24h", or a number of seconds.',
        f"# {PREFIX}<NAME> in the environment wins over this file, and an option of a command over both.",
    ]
    for name, text in descriptions().items():
        lines += ["", f"# {text}", f"#{name} = {value_text(name)}"]
    return "\n".join([*lines, ""])


def slack_tokens() -> dict[str, str]:
    """The tokens of Slack that are set, by the names of their variables."""
    return {name: os.environ[name] for name in SLACK_TOKENS if os.environ.get(name)}


def sqlite_path(url: str) -> Path | None:
    """The file a database URL names, None for PostgreSQL; anything else is refused."""
    if url.startswith(("postgresql://", "postgres://")):
        if not _POSTGRES.fullmatch(url):
            # Else a part of the password would be taken for a host or a port, and named in the error.
            raise HoldfastError(
                "the database URL cannot be read: expected postgresql://user:password@host:port/database with special"
                " characters percent-encoded (@ is %40, / is %2F)"
            )
        return None
    scheme, path = url[: len("sqlite:///")], url[len("sqlite:///") :]
    if scheme != "sqlite:///" or path in ("", ":memory:"):
        # The URL itself is not repeated: a mistyped one may hold a password.
        raise HoldfastError("a database URL is sqlite:///path/to/file.db or postgresql://user:password@host/database")
    return Path(path).expanduser()


def _explain(problem: ErrorDetails, path: Path, given: dict[str, object]) -> str:
    """Which place the value came from, which setting it is, and what would be right."""
    name = str(problem["loc"][0]) if problem["loc"] else ""
    if problem["type"] == "extra_forbidden":
        like = get_close_matches(name, Settings.model_fields, n=1)
        remedy = f"did you mean {like[0]}?" if like else "`holdfast init` writes a file with all there are"
        return f"{path}: there is no setting {name}; {remedy}"
    message = problem["msg"].removeprefix("Value error, ")
    place = f"{path}: {name}"
    if name in given:
        place = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    elif os.environ.get(f"{PREFIX}{name.upper()}"):
        place = f"{PREFIX}{name.upper()}"
    # What may hold a password is not repeated.
    if name not in Settings.model_fields or not Settings.model_fields[name].repr:
        return f"{place}: {_lowered(message)}"
    value = problem["input"]
    return (
        f"{place}: {_lowered(message)} (it is {duration_text(value) if isinstance(value, timedelta) else repr(value)})"
    )


def _lowered(message: str) -> str:
    return f"{message[:1].lower()}{message[1:]}"
