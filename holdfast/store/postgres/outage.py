"""Outages: errors of a server that cannot work right now, and time limits to notice them."""

from __future__ import annotations

from psycopg import InterfaceError, OperationalError, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

OUTAGES = (
    PoolTimeout,
    PoolClosed,
    TooManyRequests,
    OperationalError,
    InterfaceError,
    # A standby, a primary that was demoted, or a server that was set to read-only.
    errors.ReadOnlySqlTransaction,
)
"""Errors after which the same call may succeed later."""

# With these limits, the driver notices within about ten seconds that a server has vanished.
TIMEOUTS = {
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
CONNECT_SECONDS = 5
CONNECT_SECONDS_EACH = 2
"""With several hosts: one that does not answer must not delay the next for long."""


def with_timeouts(url: str) -> str:
    """Add time limits to a connection string, unless it has its own."""
    given = conninfo_to_dict(url)
    hosts = str(given.get("host") or given.get("hostaddr") or "").split(",")
    limits = TIMEOUTS | {
        "connect_timeout": CONNECT_SECONDS if len(hosts) == 1 else CONNECT_SECONDS_EACH
    }
    return make_conninfo(
        url, **{name: limit for name, limit in limits.items() if name not in given}
    )
