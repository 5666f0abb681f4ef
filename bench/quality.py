"""How well memory finds what is asked for, printed: recall@5 of the fused search beside the better one alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bench.engine import Engine
from bench.row import Goal, Row
from bench.scale import Scale
from holdfast.store import open_store
from holdfast.store.memories import open_knowledge
from holdfast.testing.quality import SETS, fill, recall


async def memory_quality(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    with engine.fresh() as url:
        async with open_store(url) as store:
            index = open_knowledge(store)
            await fill(index)
            for kind, questions in SETS.items():
                found = await recall(index, questions)
                yield Row(
                    store=engine.name,
                    what=f"recall@5, {len(questions)} questions {kind}",
                    measured=found.fused * 100,
                    against=f"better of words {found.words:.0%}, vectors {found.vectors or 0:.0%}",
                    beside=found.better_alone * 100,
                    goal=Goal(1.0),
                    unit="%",
                )
