"""A relay process for tests that kill it: `python -m tests.memory.relay_process URL`."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from array import array
from collections.abc import Sequence
from datetime import timedelta

from holdfast.consumers.memory import KnowledgeStoreOutboxRelay, RelayOptions
from holdfast.store import open_store
from holdfast.store.memory import open_knowledge, open_observations

# Every kill uses an attempt, and no event may become poison here.
OPTIONS = RelayOptions(
    claim_duration=timedelta(seconds=2),
    poll_interval=timedelta(milliseconds=100),
    max_attempts=1_000,
)


class SlowEmbedder:
    """A slow embedder, so that kills hit running turns. It loads its model at once."""

    model = "dawdling"
    dimensions = 2

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        time.sleep(random.random() * 0.03)
        return [array("f", (1.0, 0.0)).tobytes()] * len(texts)


async def main(url: str) -> None:
    async with (
        open_store(url) as store,
        KnowledgeStoreOutboxRelay(
            open_observations(store), open_knowledge(store, SlowEmbedder()), options=OPTIONS
        ),
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
