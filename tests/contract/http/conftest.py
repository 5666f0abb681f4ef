"""The API over a store with a clock that the test moves, asked without a socket between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from holdfast.agents.echo import echo
from holdfast.api.app import create_app
from holdfast.api.limits import Limits
from holdfast.api.security.bootstrap_tokens import bootstrap_tokens
from holdfast.app import AgentHarness
from holdfast.channels.base import Channel
from holdfast.chat import ChatStore
from holdfast.memory.embedder import Embedder, LocalEmbedder
from holdfast.queue.consumer import Consumer
from holdfast.settings import Settings
from tests.contract.http.steps import HOST, Api

# One for all tests: each loads the model at its first use.
EMBEDDER = LocalEmbedder()


@dataclass
class Front:
    """The part of a harness that the routes need."""

    settings: Settings | None
    store: ChatStore
    stopping: bool = False
    embedder: Embedder = EMBEDDER
    consumers: Sequence[Consumer] = ()
    channels: Mapping[str, Channel] = field(default_factory=dict)


@pytest.fixture
def limits() -> Limits:
    """Counts are never cached, however busy the machine is."""
    return Limits(quick_query=timedelta.max)


@pytest_asyncio.fixture
async def api(store: ChatStore, tmp_path: Path, limits: Limits) -> AsyncIterator[Api]:
    """An API for the agents coder (the default) and writer, which make up the team dev."""
    app = AgentHarness(default="coder")
    for name in ("coder", "writer"):
        app.add(name, echo)
    app.team("dev", name="Devs", agents=["coder", "writer"], leader="coder")
    await app.routing.write(store)
    settings = Settings(home=tmp_path, database="sqlite:///unused.db")
    front = create_app(Front(settings, store), HOST, limits)
    transport = httpx.ASGITransport(front, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        yield Api(client, store, bootstrap_tokens(tmp_path), settings, front)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files root, with a file in it."""
    root = tmp_path / "files"
    root.mkdir()
    (root / "report.txt").write_text("all is well")
    return root
