"""Variables of the environment that are no settings of ours: tokens, and where telemetry goes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from holdfast.errors import HoldfastError

PREFIX = "HOLDFAST_"
DATABASE_URL = "DATABASE_URL"
_WITH_DRIVER = re.compile(r"\A(postgres(?:ql)?)\+\w+://")
LIBPQ_DATABASE = ("PGSERVICE", "PGHOST", "PGHOSTADDR", "PGDATABASE")
"""Variables of libpq that choose a database; others, such as PGUSER alone, do not."""
SLACK_TOKENS = {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-", "SLACK_SIGNING_SECRET": ""}
"""Variables that Slack's own documents name, and how their values begin."""
EXPORTERS = ("LOGFIRE_TOKEN", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

ORDINARY: tuple[str, ...] = (
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TMPDIR",
)
ORDINARY = (*ORDINARY, "TZ", "USER", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Variables that a program needs to find its way, and that hold no secrets."""


def slack_tokens() -> dict[str, str]:
    """The tokens of Slack that are set, by the names of their variables."""
    return {name: os.environ[name] for name in SLACK_TOKENS if os.environ.get(name)}


def variable(name: str) -> str:
    """A variable that a setting names; empty where it is not set."""
    return os.environ.get(name, "")


def service_name() -> str | None:
    """Name under which spans and metrics are sent unless a setting says another, None where nobody takes them."""
    taken = any(os.environ.get(name) for name in EXPORTERS)
    return os.environ.get("OTEL_SERVICE_NAME") or "holdfast" if taken else None


def variable_of(setting: str) -> str:
    """The variable that a setting is read from."""
    return f"{PREFIX}{setting.upper()}"


def common_database() -> tuple[str, str] | None:
    """The database that variables of other programs name, and which ones: DATABASE_URL, else those of libpq."""
    # Some libraries name their driver in the scheme.
    url = _WITH_DRIVER.sub(r"\1://", os.environ.get(DATABASE_URL, ""))
    if url and not url.startswith(("postgres://", "postgresql://", "sqlite:///")):
        raise HoldfastError(
            f"{DATABASE_URL} is neither postgresql:// nor sqlite:///: set {PREFIX}DATABASE"
        )
    if url:
        return url, DATABASE_URL
    named = [name for name in LIBPQ_DATABASE if os.environ.get(name)]
    # libpq itself reads these and the rest: port, user, password, TLS.
    return ("postgresql://", " and ".join(named)) if named else None


def libpq_address() -> str:
    """Host and database of a URL that leaves both to libpq; never a password."""
    host = os.environ.get("PGHOST") or os.environ.get("PGHOSTADDR") or ""
    port = f":{os.environ['PGPORT']}" if os.environ.get("PGPORT") else ""
    service = f"?service={os.environ['PGSERVICE']}" if os.environ.get("PGSERVICE") else ""
    return f"{host}{port}/{os.environ.get('PGDATABASE', '')}{service}"


def is_set(variable: str) -> bool:
    return bool(os.environ.get(variable))


def child_environment(names: Sequence[str]) -> dict[str, str]:
    """The environment of a program of others: what is ordinary, and the names it is trusted with."""
    allowed = {*ORDINARY, *names}
    return {
        name: value
        for name, value in os.environ.items()
        if name in allowed or name.startswith("LC_")
    }
