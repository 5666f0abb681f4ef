"""A worker of a proof: the user's app without its platforms, with pauses around each turn.

The pauses make it likely that a fault hits a turn between its effects and its end."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.up import load
from holdfast.settings.channels import Channels
from holdfast.testing.crash.worker import stop_after_parent

if TYPE_CHECKING:
    from holdfast.app import AgentHarness
    from holdfast.settings import Settings

LONGEST_PAUSE = 0.15


def load_alone(
    app: str, config: Path | None, database: str, home: Path
) -> tuple[AgentHarness, Settings]:
    """Load an app with its agents, but with no platform, schedule or heartbeat."""
    given: dict[str, object] = {"app": app, "database": database, "home": home}
    given |= {"channels": Channels(), "schedules": (), "heartbeat": timedelta(0)}
    return load(config, given)


async def _pause(*_: object) -> None:
    await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))


def main(app: str, config: str, database: str, home: str) -> None:
    """Run the app until the process that started this one ends, or kills it."""
    threading.Thread(target=stop_after_parent, daemon=True).start()
    harness, settings = load_alone(app, Path(config) if config else None, database, Path(home))
    harness.incoming(_pause)
    harness.outgoing(_pause)
    asyncio.run(
        harness.run(num_workers=settings.workers, on_ready=lambda: print("ready", flush=True))
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
