"""Extras: optional packages, and the error that names a missing one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from holdfast.errors import HoldfastError

DISTRIBUTION = "holdfast-agents"
"""Name of our distribution; on PyPI, `holdfast` belongs to somebody else."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "slack": ("aiohttp", "slack_bolt"),
    "matrix": ("markdown_it", "mautrix"),
    "discord": ("discord",),
    "telegram": ("aiogram",),
    "whatsapp": ("aiohttp",),
    "email": ("imapclient",),
    "llm": ("jinja2", "pydantic_ai"),
    "memory": ("numpy", "wordllama"),
    "oidc": ("joserfc",),
    "speed": ("uvloop",),
}
"""Modules of each extra."""


def is_missing(extra: str) -> bool:
    """Return whether a module of the extra is missing, without importing any."""
    return any(not _is_installed(module) for module in EXTRAS[extra])


def remedy(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def require(extra: str, what: str) -> None:
    """Raise an error if an extra that `what` needs is not installed."""
    if is_missing(extra):
        raise HoldfastError(needs(extra, what))


def needs(extra: str, what: str) -> str:
    """Return the error for a missing extra."""
    return f"{what} needs packages that are not installed: {remedy(extra)}"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
