"""Hostile inputs over HTTP, Slack, agents' replies, rows by hand and raw sockets break nothing.

A run prints its seed; HOLDFAST_FUZZ_SEED repeats it. An input depends on nothing but the seed, its
kind and its number."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from pathlib import Path

import pytest

from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.api.fuzzing import fuzzed

SEED = os.environ.get("HOLDFAST_FUZZ_SEED") or secrets.token_hex(4)
FEW = 400
MANY = 100_000


async def attack(engine: str, databases: Databases, folder: Path, count: int) -> dict[str, int]:
    """Send so many inputs to a new server. Returns what blocked its event loop, and how often."""
    await asyncio.to_thread(folder.mkdir)
    print(f"HOLDFAST_FUZZ_SEED={SEED}: {count} inputs on {engine}", flush=True)
    with available(engine, databases.fresh(engine)) as database:
        async with fuzzed(SEED, folder, database) as fuzz:
            await fuzz.run(count)
            print(f"answers: {dict(sorted(fuzz.answers.items()))}", flush=True)
            print(f"blocked the loop: {dict(fuzz.blocks)}", flush=True)
            assert not re.search("a request failed|Fatal error", fuzz.running.log)
            assert fuzz.running.process.poll() is None
    return fuzz.blocks


async def nothing_breaks(engine: str, databases: Databases, folder: Path, count: int) -> None:
    """Attack, and once more with the same inputs if something blocked the loop.

    A text that takes too long does so each time. On a busy machine the loop may be blocked without
    our fault, but not in the same function again."""
    blocks = await attack(engine, databases, folder / "first", count)
    if blocks:
        again = await attack(engine, databases, folder / "second", count)
        assert not blocks.keys() & again.keys(), (
            f"seed {SEED}: blocked the loop twice: {blocks}, {again}"
        )


async def test_a_few_hundred_hostile_inputs_break_nothing(
    databases: Databases, tmp_path: Path
) -> None:
    await nothing_breaks("sqlite", databases, tmp_path, FEW)


@pytest.mark.chaos
@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_100_000_hostile_inputs_break_nothing(
    engine: str, databases: Databases, tmp_path: Path
) -> None:
    await nothing_breaks(engine, databases, tmp_path, MANY)
