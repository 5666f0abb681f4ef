"""Extras: parts whose packages are not installed with the core, and the line that says so."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from holdfast.errors import HoldfastError

DISTRIBUTION = "holdfast-agents"
"""The name to install; on PyPI, `holdfast` belongs to others."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "slack": ("aiohttp", "slack_bolt"),
    "llm": ("jinja2", "pydantic_ai"),
    "memory": ("numpy", "wordllama"),
    "oidc": ("joserfc",),
}
"""Modules of each extra."""


def is_missing(extra: str) -> bool:
    """Whether a module of the extra cannot be found. Nothing is imported."""
    return any(not _is_there(module) for module in EXTRAS[extra])


def remedy(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def require(extra: str, what: str) -> None:
    """Refuse in one line what needs an extra that is not installed."""
    if is_missing(extra):
        raise HoldfastError(needs(extra, what))


def needs(extra: str, what: str) -> str:
    return f"{what} needs packages that are not installed: {remedy(extra)}"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
