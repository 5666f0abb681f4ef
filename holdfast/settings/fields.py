"""The settings, each with its default and its description."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from holdfast.settings.agents import AgentTable, Id, McpTable, SandboxName, TeamTable
from holdfast.settings.channels import Channels
from holdfast.settings.channels.table import Pairing
from holdfast.settings.duration import Duration, OrForever
from holdfast.settings.environment import PREFIX, common_database, is_set, service_name, variable_of
from holdfast.settings.networks import networks
from holdfast.settings.providers import Provider
from holdfast.settings.schedules import ScheduleTable

CONNECTIONS = 8
"""Connections to PostgreSQL for claims, settles, renewals and the API; turns may hold more."""
MOST_CONNECTIONS = 1000
_ORIGIN = re.compile(r"\Ahttps?://[^/?#\s]++/?")


class Settings(BaseSettings):
    """The settings. Sources: the command line, HOLDFAST_<NAME>, holdfast.toml, the default."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )
    _database_source: str = PrivateAttr("default")

    # `holdfast init` writes the text below each field; an example replaces a missing default.
    home: Path = Path("~/.holdfast")
    """Folder for all files of Holdfast."""
    workspaces: Path | None = Field(default=None, examples=["/srv/holdfast-workspaces"])
    """Folder with one workspace for each command agent; by default `workspace` in the home folder.
    In production, choose one outside of the home folder, which holds the tokens."""
    database: str = Field(default="", repr=False, examples=["sqlite:///~/.holdfast/holdfast.db"])
    """sqlite:///path or postgresql://…; by default DATABASE_URL, then PGHOST and the like, then
    holdfast.db in the home folder."""
    database_direct: str = Field(
        default="", repr=False, examples=["postgresql://user@host/database"]
    )
    """URL of the same database without a pooler, for the one lasting session of each process."""
    connections: int | None = Field(default=None, ge=1, le=MOST_CONNECTIONS, examples=[20])
    """Maximum connections of one process to PostgreSQL, beside the direct one; by default 8 plus
    one per concurrent turn."""
    app: str = Field(default="", examples=["my_module:app"])
    """module:name of the AgentHarness to run; the working directory is importable. Without it, the
    echo agent runs."""
    workers: int = Field(default=5, ge=1, le=10_000)
    """Maximum concurrent turns of each agent in one process."""
    workers_total: int = Field(default=100, ge=1, le=10_000)
    """Maximum concurrent turns of all agents in one process, shared fairly; at least `workers`."""
    deliveries: int = Field(default=16, ge=1, le=10_000)
    """Maximum concurrent deliveries of responses in one process."""
    lease: Duration = Field(default=timedelta(minutes=10), ge=timedelta(seconds=1))
    """Time after which a turn without a renewal is free for others."""
    max_attempts: int = Field(default=5, ge=1)
    """Maximum attempts of a message from the API or a channel other than Slack."""
    slack_max_attempts: int = Field(default=3, ge=1)
    """Maximum attempts of a message from Slack or SQL, unless it or its agent sets its own."""
    retry_first: Duration = timedelta(seconds=2)
    """Shortest delay before a failed turn is retried."""
    retry_most: Duration = timedelta(minutes=5)
    """Longest delay before a failed turn is retried."""
    poll: Duration = Field(default=timedelta(seconds=60), ge=timedelta(milliseconds=10))
    """Interval between polls without a wake-up, in case a wake-up is lost."""
    poll_jitter: Duration = timedelta(seconds=15)
    """Random deviation of each poll, so that a fleet does not poll at the same time."""
    start_stagger: Duration = timedelta(0)
    """Maximum random delay of the first poll; 30s suits a fleet."""
    grace: Duration = timedelta(seconds=30)
    """Time that running turns have to end after a stop was requested."""
    heartbeat: Duration = timedelta(0)
    """Interval between heartbeat prompts to each agent; 0 turns them off."""
    sweep_every: Duration = Field(default=timedelta(seconds=60), ge=timedelta(milliseconds=10))
    """Interval between sweeps for expired and old events."""
    expire_after: Duration = timedelta(hours=24)
    """Time after which a message that no agent took becomes a dead letter."""
    unfetched_after: Duration = timedelta(days=7)
    """Time after which a response that nobody fetched is discarded."""
    dedup_window: Duration = timedelta(days=7)
    """Time for which the id of a finished message is kept, to recognise duplicates."""
    keep_history: OrForever = Field(default=None, examples=["24h"])
    """Time for which finished events are kept; by default 24h on SQLite and "forever" on
    PostgreSQL. Dead letters are always kept."""
    memory: bool = True
    """Run memory in this process: index observations, and give them to agents with memory."""
    memory_tokens: int = Field(default=1000, ge=0)
    """Maximum tokens of remembered observations in a turn."""
    keep_files: OrForever = timedelta(days=30)
    """Time for which files of conversations are kept: those of messages, and those that agents
    sent from their workspaces."""
    max_upload: int = Field(default=25, ge=1, le=1024)
    """Largest file that can be uploaded for a message, in MiB."""
    keep_choices: OrForever = timedelta(days=90)
    """Time for which an idle conversation keeps the agent that `@agent` alone chose for it."""
    keep_deleted: Duration = timedelta(days=30)
    """Time for which softly deleted observations are kept; searches no longer find them."""
    activity: bool = True
    """Record activity for /api/events/stream, from the first time that an API or `tail` runs."""
    keep_activity: Duration = timedelta(hours=24)
    """Time for which activity is kept; a client that resumes later gets a `gap` frame."""
    keep_audit: OrForever = Field(default=None, examples=["730d"])
    """Time for which entries of the audit log are kept; by default "forever"."""
    api_host: str = "127.0.0.1"
    """Address that the API listens on."""
    api_port: int = Field(default=3777, ge=0, le=65_535)
    """Port of the API; 0 chooses a free one."""
    api_auth: Literal["token", "none"] = "token"
    """Access to the API: "token", or "none" for everybody, on loopback only."""
    api_session: Duration = Field(default=timedelta(days=7), ge=timedelta(minutes=1))
    """Time for which a browser stays logged in."""
    api_url: str = Field(default="", examples=["https://holdfast.example.com"])
    """Public URL of the API, such as that of a proxy; login links begin with it, and its host is
    accepted."""
    oidc_issuer: str = Field(default="", examples=["https://accounts.example.com"])
    """OpenID Connect provider for logins to the page: the URL of its discovery document without
    /.well-known."""
    oidc_client_id: str = Field(default="", examples=["holdfast"])
    """Client id at the provider."""
    oidc_client_secret: str = Field(default="", repr=False, examples=["a long secret"])
    """Client secret at the provider; empty for a public client."""
    oidc_roles: str = Field(default="", examples=["ops = admin, staff = send"])
    """Roles of the provider's groups; people in none of these groups are refused."""
    oidc_groups_claim: str = "groups"
    """Claim of the id token or of the user information that lists a person's groups."""
    oidc_scopes: str = "openid profile email groups"
    """Scopes to request from the provider."""
    api_hosts: str = Field(default="", examples=["holdfast.example.com, build"])
    """Additional host names of the API, such as those of a proxy; others are refused."""
    api_origins: str = Field(default="", examples=["https://chat.example.com"])
    """Origins of other pages that may use the API with a token; by default none."""
    api_rate: float = Field(default=5000, ge=1)
    """Maximum requests per second of one client."""
    api_connections: int = Field(default=1000, ge=1)
    """Maximum connections to the API; a small reserve beyond them serves health checks and
    webhooks."""
    api_client_connections: int = Field(default=500, ge=1)
    """Maximum connections to the API from one address, except those of `api_proxies`."""
    api_proxies: str = Field(default="", examples=["10.0.0.5, 192.168.0.0/16"])
    """Addresses or networks of proxies in front of the API; X-Forwarded-For and -Proto count only
    from these."""
    metrics_port: int | None = Field(default=None, ge=0, le=65_535, examples=[9464])
    """Port on which `holdfast work` serves health checks and /metrics; by default none."""
    event_loop: Literal["asyncio", "uvloop"] = "asyncio"
    """Event loop of a process. Without the extra `speed`, asyncio runs instead of uvloop."""
    blocked_after: Duration = timedelta(milliseconds=200)
    """Time that a callback may block the event loop before a warning and a metric name it; 0 turns
    this off."""
    metrics_auth: Literal["token", "none"] = "token"
    """Access to /metrics of `holdfast work`: "token", or "none" for everybody, on loopback only."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of log lines on stderr."""
    log_format: Literal["text", "json"] = "text"
    """Format of log lines on stderr: text for people, json for programs."""
    trace_service: str = Field(default="", examples=["holdfast"])
    """Service name of exported spans and metrics; LOGFIRE_TOKEN or OTEL_EXPORTER_OTLP_ENDPOINT
    turns the export on."""
    trace_ratio: float = Field(default=0.001, ge=0, le=1)
    """Fraction of turns that get spans, from 0 to 1; one turn a second gets them anyway."""
    sandbox: SandboxName = "auto"
    """Sandbox of command agents: "bubblewrap", "user:NAME", "none", or "auto" for bubblewrap if it
    works."""
    debuggable: bool = False
    """Allow other programs of the same user to inspect this process, as debuggers and py-spy do."""
    default: str = Field(default="", examples=["coder"])
    """Agent of messages that name none; by default the first one."""
    agents: dict[Id, AgentTable] = Field(
        default_factory=dict, examples=["coder", "writer", "helper", "parrot"]
    )
    """An agent."""
    teams: dict[Id, TeamTable] = Field(default_factory=dict, examples=["dev"])
    """Agents that work together; the leader receives messages to the team."""
    pairing: Pairing = "code"
    """How strangers on Matrix, Discord, Telegram, WhatsApp and by e-mail get in: "code" sends them
    a code that you approve, "open" answers everybody, "closed" only people on lists or approved
    before."""
    schedules: tuple[ScheduleTable, ...] = ()
    """A message that an agent gets at certain times; repeat the table for several."""
    channels: Channels = Channels()
    """Chat platforms, beside the API."""
    mcp: dict[str, McpTable] = Field(default_factory=dict, examples=["files"])
    """A server with tools for language models (Model Context Protocol): a command or a URL."""
    providers: dict[str, Provider] = Field(default_factory=dict, examples=["local"])
    """A provider of language models; agents name it before the colon: model = "local:llama"."""

    @property
    def files(self) -> Path:
        """The files root; agents can send only files below it."""
        return self.home / "files"

    @property
    def workspace_folder(self) -> Path:
        """The folder that holds the workspaces of command agents."""
        return self.workspaces or self.home / "workspace"

    @property
    def exports_as(self) -> str | None:
        """The service name of exported spans and metrics; None if no exporter is set."""
        name = service_name()
        return self.trace_service or name if name else None

    def pool_size(self, workers: int, agents: int) -> int:
        """Return the maximum of pooled connections for this many agents; a turn may hold one."""
        turns = min(workers * max(agents, 1), max(workers, self.workers_total))
        return self.connections or min(CONNECTIONS + turns, MOST_CONNECTIONS)

    @field_validator("api_proxies")
    @classmethod
    def _are_networks(cls, proxies: str) -> str:
        networks(proxies)
        return proxies

    @field_validator("schedules")
    @classmethod
    def _have_own_ids(cls, schedules: tuple[ScheduleTable, ...]) -> tuple[ScheduleTable, ...]:
        ids = [schedule.id for schedule in schedules]
        if twice := next((id for id in ids if ids.count(id) > 1), None):
            raise ValueError(f"two schedules have the id {twice!r}")
        return schedules

    @field_validator("home", "workspaces")
    @classmethod
    def _absolute(cls, folder: Path | None) -> Path | None:
        return folder and folder.expanduser().absolute()

    @field_validator("api_url")
    @classmethod
    def _is_origin(cls, url: str) -> str:
        if url and not _ORIGIN.fullmatch(url):
            raise ValueError(
                "it must be a URL without a path, such as https://holdfast.example.com"
            )
        return url.rstrip("/")

    @model_validator(mode="before")
    @classmethod
    def _drop_unset(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value is not None}

    @property
    def database_source(self) -> str:
        """The option, variable or file that chose the database."""
        return self._database_source

    def name_source(self, source: str) -> Settings:
        """Record what chose the database, if the settings themselves cannot know."""
        self._database_source = source
        return self

    @model_validator(mode="after")
    def _complete(self) -> Settings:
        database, self._database_source = self._find_database()
        # The object is frozen, but still under construction here.
        object.__setattr__(self, "database", database)
        object.__setattr__(self, "database_direct", self.database_direct or database)
        if "keep_history" not in self.model_fields_set and database.startswith("sqlite:"):
            object.__setattr__(self, "keep_history", timedelta(hours=24))
        return self

    def _find_database(self) -> tuple[str, str]:
        """Return the URL of the database, and the name of its source."""
        if not self.database:
            return common_database() or (f"sqlite:///{self.home / 'holdfast.db'}", "default")
        file = str(self.model_config.get("toml_file") or "the program")
        return self.database, variable_of("database") if is_set(variable_of("database")) else file

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
