"""Environment variables that are not settings of ours: tokens, exporters, libpq."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from holdfast.errors import HoldfastError

PREFIX = "HOLDFAST_"
DATABASE_URL = "DATABASE_URL"
_WITH_DRIVER = re.compile(r"\A(postgres(?:ql)?)\+\w+://")
LIBPQ_DATABASE = ("PGSERVICE", "PGHOST", "PGHOSTADDR", "PGDATABASE")
"""Variables of libpq that choose a database; PGUSER and others alone do not."""
SLACK_TOKENS = {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-", "SLACK_SIGNING_SECRET": ""}
"""Variables of Slack's documentation, and the prefixes of their values."""
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
"""Variables that programs need and that hold no secrets."""


def slack_tokens() -> dict[str, str]:
    """Return the Slack tokens that are set, by variable."""
    return {name: os.environ[name] for name in SLACK_TOKENS if os.environ.get(name)}


def variable(name: str) -> str:
    """Read a variable that a setting names; an empty text if it is not set."""
    return os.environ.get(name, "")


def service_name() -> str | None:
    """Return the default service name of spans and metrics; None if no exporter is set."""
    is_exported = any(os.environ.get(name) for name in EXPORTERS)
    return os.environ.get("OTEL_SERVICE_NAME") or "holdfast" if is_exported else None


def variable_of(setting: str) -> str:
    """Return the environment variable of a setting."""
    return f"{PREFIX}{setting.upper()}"


def common_database() -> tuple[str, str] | None:
    """Return the database of DATABASE_URL or libpq's variables, and the variables' names."""
    # Some libraries add their driver to the scheme.
    url = _WITH_DRIVER.sub(r"\1://", os.environ.get(DATABASE_URL, ""))
    if url and not url.startswith(("postgres://", "postgresql://", "sqlite:///")):
        raise HoldfastError(
            f"{DATABASE_URL} is neither postgresql:// nor sqlite:///: set {PREFIX}DATABASE"
        )
    if url:
        return url, DATABASE_URL
    named = [name for name in LIBPQ_DATABASE if os.environ.get(name)]
    # libpq reads these itself, with port, user, password and TLS settings.
    return ("postgresql://", " and ".join(named)) if named else None


def libpq_address() -> str:
    """Return host and database from libpq's variables; never a password."""
    host = os.environ.get("PGHOST") or os.environ.get("PGHOSTADDR") or ""
    port = f":{os.environ['PGPORT']}" if os.environ.get("PGPORT") else ""
    service = f"?service={os.environ['PGSERVICE']}" if os.environ.get("PGSERVICE") else ""
    return f"{host}{port}/{os.environ.get('PGDATABASE', '')}{service}"


def is_set(variable: str) -> bool:
    return bool(os.environ.get(variable))


def child_environment(names: Sequence[str]) -> dict[str, str]:
    """Return the environment for a child program: ordinary variables and the given names."""
    allowed = {*ORDINARY, *names}
    return {
        name: value
        for name, value in os.environ.items()
        if name in allowed or name.startswith("LC_")
    }
