"""1,000 mentions in 100 threads of each platform, within its rate limit."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast.agents.echo import echo
from holdfast.settings import Settings
from holdfast.testing.crowds import CROWDS, answered_in_order, open_crowd
from holdfast.testing.servers import Unavailable
from tests.api.serving import serving
from tests.steps import both_engines, quick_harness

THREADS, EACH = 100, 10


@pytest.mark.chaos
@pytest.mark.usefixtures("without_slack")
@pytest.mark.parametrize("channel", CROWDS)
@both_engines
async def test_a_thousand_mentions_in_a_hundred_threads_are_answered_once_and_in_order(
    channel: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if channel == "email" and os.geteuid():
        pytest.skip("Dovecot and Postfix have to be started by root")
    settings = Settings(home=tmp_path, database=database_url, pairing="open")
    try:
        async with open_crowd(channel) as crowd:
            crowd.limit()
            for name, value in crowd.variables.items():
                monkeypatch.setenv(name, value)
            async with serving(quick_harness(echo, settings=settings)) as port:
                crowd.connect(f"http://127.0.0.1:{port}")
                await crowd.wait_ready()
                begun = time.monotonic()
                await crowd.ask(THREADS, EACH)
                await crowd.wait(THREADS * EACH)
                print(f"{crowd.title}: {time.monotonic() - begun:.0f} s")
            found = await crowd.answers()
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert answered_in_order(found, THREADS, EACH), found
    assert not +crowd.early_requests
