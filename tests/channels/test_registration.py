"""Channels are turned on by tables or variables, and other packages add theirs by entry points."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from holdfast.channels import Setup, configured_channels
from holdfast.channels.base import Channel, Put
from holdfast.errors import HoldfastError
from holdfast.queue.event import Event
from holdfast.queue.store import Store
from holdfast.settings import Settings, load
from holdfast.settings import channels as settings_channels


@pytest.fixture
def engine() -> str:
    return "sqlite"


class Post(Channel):
    """A channel of another package."""

    name = "post"

    def __init__(self, tables: Sequence[dict[str, Any]]) -> None:
        self.tables = tables

    async def run(self, put: Put) -> None:
        return

    async def send(self, response: Event) -> None:
        return


def post_channel(setup: Setup, tables: Sequence[dict[str, Any]]) -> Channel | None:
    return Post(tables) if tables else None


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("SLACK_BOT_TOKEN")

    def install(name: str, value: str) -> None:
        found = EntryPoint(name=name, value=value, group=settings_channels.ENTRY_POINTS)
        monkeypatch.setattr(settings_channels, "entry_points", lambda group: [found])

    return install


def settings_from(folder: Path, text: str) -> Settings:
    (folder / "holdfast.toml").write_text(text)
    return load(config=folder / "holdfast.toml", home=folder)


@pytest.mark.parametrize("header", ["[channels.post]", "[[channels.post]]"])
async def test_an_installed_channel_gets_its_tables(
    install: Any, store: Store, tmp_path: Path, header: str
) -> None:
    install("post", f"{__name__}:post_channel")
    settings = settings_from(tmp_path, f"{header}\nbox = 7")
    [channel] = configured_channels(settings, store)
    assert isinstance(channel, Post)
    assert channel.tables == ({"box": 7},)
    assert list(configured_channels(settings, store, given=["post"])) == []


async def test_an_installed_channel_without_a_table_may_stay_off(
    install: Any, store: Store, tmp_path: Path
) -> None:
    install("post", f"{__name__}:post_channel")
    assert list(configured_channels(settings_from(tmp_path, ""), store)) == []


async def test_a_table_of_a_channel_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=r"there is no setting channels\.post"):
        settings_from(tmp_path, "[channels.post]\nbox = 7")


async def test_an_installed_channel_that_cannot_be_loaded_is_named(
    install: Any, store: Store, tmp_path: Path
) -> None:
    install("post", f"{__name__}:nothing")
    with pytest.raises(HoldfastError, match=r"the installed channel post \(.*nothing\) cannot be"):
        list(configured_channels(settings_from(tmp_path, ""), store))


async def test_an_installed_channel_replaces_no_built_in_one(
    install: Any, store: Store, tmp_path: Path
) -> None:
    install("slack", f"{__name__}:post_channel")
    with pytest.raises(HoldfastError, match="names its channel slack, which is built in"):
        list(configured_channels(settings_from(tmp_path, ""), store))


async def test_one_table_of_a_channel_needs_no_list(tmp_path: Path) -> None:
    settings = settings_from(tmp_path, "[channels.slack]\nbots = true")
    assert [workspace.bots for workspace in settings.channels.slack] == [True]
