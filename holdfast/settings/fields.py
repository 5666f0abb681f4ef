"""The settings, each with its default and its text."""

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
from holdfast.settings.duration import Duration, OrForever
from holdfast.settings.environment import PREFIX, common_database, is_set, service_name, variable_of
from holdfast.settings.networks import networks
from holdfast.settings.providers import Provider

CONNECTIONS = 8
"""Connections to PostgreSQL for claims, settles, renewals and the API, beside those that turns may hold."""
MOST_CONNECTIONS = 1000
_ORIGIN = re.compile(r"\Ahttps?://[^/?#\s]++/?")


class Settings(BaseSettings):
    """A value comes from the command line, else HOLDFAST_<NAME>, else holdfast.toml, else the default here."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )
    _database_source: str = PrivateAttr("default")

    # The text below a field is what `holdfast init` writes; an example stands where the default is no value.
    home: Path = Path("~/.holdfast")
    """Folder of everything that is kept in files."""
    database: str = Field(default="", repr=False, examples=["sqlite:///~/.holdfast/holdfast.db"])
    """sqlite:///path or postgresql://…; by default DATABASE_URL, PGHOST …, or holdfast.db in the home folder."""
    database_direct: str = Field(
        default="", repr=False, examples=["postgresql://user@host/database"]
    )
    """The same database without a pooler between, for the one session per process that must last."""
    connections: int | None = Field(default=None, ge=1, le=MOST_CONNECTIONS, examples=[20])
    """Most connections of one process to PostgreSQL beside the direct one; by default 8, and one per turn at once."""
    app: str = Field(default="", examples=["my_module:app"])
    """module:name of the AgentHarness to run; the working directory is importable. By default the echo agent."""
    workers: int = Field(default=5, ge=1, le=10_000)
    """Turns of each agent at once in one process."""
    workers_total: int = Field(default=100, ge=1, le=10_000)
    """Turns of all agents at once in one process, shared out fairly; `workers` where that is more."""
    deliveries: int = Field(default=16, ge=1, le=10_000)
    """Responses delivered at once by one process."""
    lease: Duration = Field(default=timedelta(minutes=10), ge=timedelta(seconds=1))
    """How long a turn is held without a renewal."""
    max_attempts: int = Field(default=5, ge=1)
    """Attempts of a message that came by the API or a channel other than Slack."""
    slack_max_attempts: int = Field(default=3, ge=1)
    """Attempts of a message from Slack or SQL, where neither it nor its agent has a number of its own."""
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
    heartbeat: Duration = timedelta(0)
    """How often each agent is asked by itself whether there is anything to do; 0 is never."""
    sweep_every: Duration = Field(default=timedelta(seconds=60), ge=timedelta(milliseconds=10))
    """How often to look for what is expired or old."""
    expire_after: Duration = timedelta(hours=24)
    """A message that nobody took for this long is a dead letter."""
    unfetched_after: Duration = timedelta(days=7)
    """A response that nobody fetched for this long is discarded."""
    dedup_window: Duration = timedelta(days=7)
    """How long the id of a finished message is remembered."""
    keep_history: OrForever = Field(default=None, examples=["24h"])
    """How long finished events are kept; by default 24h on SQLite, "forever" on PostgreSQL. Never a dead letter."""
    memory: bool = True
    """Whether this process carries what agents observe into the index, and reminds agents that remember."""
    memory_tokens: int = Field(default=1000, ge=0)
    """How much of a turn may be what its agent remembers."""
    keep_files: OrForever = timedelta(days=30)
    """How long files of conversations are kept: what came with messages, and what agents sent from workspaces."""
    keep_choices: OrForever = timedelta(days=90)
    """How long a conversation without messages keeps the agent that `@agent` alone chose for it."""
    keep_deleted: Duration = timedelta(days=30)
    """How long an observation is kept that was deleted softly: out of every search, but not yet gone."""
    activity: bool = True
    """Whether what happens to messages is written down for /api/events/stream, once there was an API to read it."""
    keep_activity: Duration = timedelta(hours=24)
    """How long it is kept; a client that comes back later is told of the gap."""
    keep_audit: OrForever = Field(default=None, examples=["730d"])
    """How long the audit log keeps an entry; by default "forever"."""
    api_host: str = "127.0.0.1"
    """Address at which the API listens."""
    api_port: int = Field(default=3777, ge=0, le=65_535)
    """Port of the API; 0 takes a free one."""
    api_auth: Literal["token", "none"] = "token"
    """Who may use the API: those with a token of this home folder, or, on loopback only, everybody with "none"."""
    api_session: Duration = Field(default=timedelta(days=7), ge=timedelta(minutes=1))
    """How long a browser stays logged in."""
    api_url: str = Field(default="", examples=["https://holdfast.example.com"])
    """Public address of the API, as behind a proxy: login links begin with it, and its host is known."""
    oidc_issuer: str = Field(default="", examples=["https://accounts.example.com"])
    """OpenID Connect provider for logins to the page, by the address of its discovery document without /.well-known."""
    oidc_client_id: str = Field(default="", examples=["holdfast"])
    """Name of this client at the provider."""
    oidc_client_secret: str = Field(default="", repr=False, examples=["a long secret"])
    """Secret of this client at the provider; none for a public client."""
    oidc_roles: str = Field(default="", examples=["ops = admin, staff = send"])
    """Roles of the provider's groups; people in none of them are refused."""
    oidc_groups_claim: str = "groups"
    """Claim of the id token, or of the user information, that lists a person's groups."""
    oidc_scopes: str = "openid profile email groups"
    """Scopes to ask the provider for."""
    api_hosts: str = Field(default="", examples=["holdfast.example.com, build"])
    """Further names by which the API may be asked, as behind a proxy; any other is refused."""
    api_origins: str = Field(default="", examples=["https://chat.example.com"])
    """Origins of foreign pages that may use the API with a token; by default none."""
    api_rate: float = Field(default=5000, ge=1)
    """Requests per second that one client may make."""
    api_connections: int = Field(default=1000, ge=1)
    """Connections to the API at once. Beyond them only health and webhooks are served, on a small reserve."""
    api_client_connections: int = Field(default=500, ge=1)
    """Connections to the API at once from one address; the addresses of `api_proxies` have no limit of their own."""
    api_proxies: str = Field(default="", examples=["10.0.0.5, 192.168.0.0/16"])
    """Addresses or networks of proxies before the API; only their X-Forwarded-For and -Proto are believed."""
    metrics_port: int | None = Field(default=None, ge=0, le=65_535, examples=[9464])
    """Port at which `holdfast work` serves /metrics, for which it has no API; by default none."""
    blocked_after: Duration = timedelta(milliseconds=200)
    """How long one callback may hold the event loop before a warning and a metric name it; 0 turns this off."""
    metrics_auth: Literal["token", "none"] = "token"
    """Readers of /metrics of `holdfast work`: holders of a token, or everybody with "none", on loopback only."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """From where on a line on stderr is worth it: debug, info, warning or error."""
    log_format: Literal["text", "json"] = "text"
    """How lines on stderr are written: text for people, json for programs."""
    trace_service: str = Field(default="", examples=["holdfast"])
    """Name under which spans and metrics go to what LOGFIRE_TOKEN or OTEL_EXPORTER_OTLP_ENDPOINT names."""
    trace_ratio: float = Field(default=0.001, ge=0, le=1)
    """Share of the turns that have spans, from 0 to 1, beside one in every second."""
    sandbox: SandboxName = "auto"
    """Sandbox of command agents: "bubblewrap", "user:NAME", "none", or "auto" for bubblewrap where it works."""
    debuggable: bool = False
    """Whether other programs of the same user may look into this process, as debuggers and py-spy do."""
    default: str = Field(default="", examples=["coder"])
    """The agent of messages that name none; by default the first."""
    agents: dict[Id, AgentTable] = Field(
        default_factory=dict, examples=["coder", "writer", "helper", "parrot"]
    )
    """An agent."""
    teams: dict[Id, TeamTable] = Field(default_factory=dict, examples=["dev"])
    """Agents that work together; a message to the team goes to its leader."""
    channels: Channels = Channels()
    """Where messages come from, beside the API."""
    mcp: dict[str, McpTable] = Field(default_factory=dict, examples=["files"])
    """A server of tools for language models, of the Model Context Protocol: a command, or an address."""
    providers: dict[str, Provider] = Field(default_factory=dict, examples=["local"])
    """A provider of language models; agents name it before the colon, as in model = "local:llama"."""

    @property
    def files(self) -> Path:
        """The files root: only what is below it is ever sent."""
        return self.home / "files"

    @property
    def exports_as(self) -> str | None:
        """Name under which spans and metrics are sent, None where nobody takes them."""
        name = service_name()
        return self.trace_service or name if name else None

    def pool_size(self, workers: int, agents: int) -> int:
        """Most pooled connections of a process that runs so many agents: each turn may hold one for a while."""
        turns = min(workers * max(agents, 1), max(workers, self.workers_total))
        return self.connections or min(CONNECTIONS + turns, MOST_CONNECTIONS)

    @field_validator("api_proxies")
    @classmethod
    def _are_networks(cls, proxies: str) -> str:
        networks(proxies)
        return proxies

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @field_validator("api_url")
    @classmethod
    def _is_origin(cls, url: str) -> str:
        if url and not _ORIGIN.fullmatch(url):
            raise ValueError(
                "an address without a path is needed, such as https://holdfast.example.com"
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
        """Say who chose the database, where the settings themselves cannot know."""
        self._database_source = source
        return self

    @model_validator(mode="after")
    def _complete(self) -> Settings:
        database = self.database
        if database:
            file = str(self.model_config.get("toml_file") or "the program")
            self._database_source = (
                variable_of("database") if is_set(variable_of("database")) else file
            )
        else:
            default = f"sqlite:///{self.home / 'holdfast.db'}", "default"
            database, self._database_source = common_database() or default
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
