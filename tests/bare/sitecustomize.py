"""Hide the packages of all extras from a process with this folder on its path."""

import sys
from collections.abc import Sequence

BLOCKED = {
    "aiohttp",
    "anthropic",
    "fastmcp",
    "jinja2",
    "joserfc",
    "mcp",
    "numpy",
    "openai",
    "pydantic_ai",
    "slack_bolt",
}
BLOCKED |= {"slack_sdk", "wordllama", "aiogram", "discord", "imapclient", "mautrix", "uvloop"}


class Blocker:
    """Asked before every other finder."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocker)
