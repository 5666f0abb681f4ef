"""The contract of channels for the folder channel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folder_channel import LIMIT

from holdfast.testing.channels import ChannelContract, Platform
from holdfast.testing.harness import until

pytest_plugins = ["holdfast.testing.fixtures"]


class FolderPlatform(Platform):
    """One person who writes files."""

    name = "folder"
    limit = LIMIT
    can_edit = can_delete = can_send_files = can_receive_files = False
    can_show_typing = can_show_growth = can_limit = can_refuse = can_look_up = False
    can_disconnect = can_revoke = has_groups = has_bots = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts: dict[str, str] = {}
        (path / "in").mkdir(parents=True)

    async def say(self, text: str) -> str:
        return self._write(f"ada.{len(self._texts):03}.txt", text)

    async def answers(self) -> list[str]:
        return self._read("ada")

    async def say_again(self, message: str) -> None:
        self._write(message, self._texts[message])
        await until(lambda: self.is_acknowledged(message))

    async def is_acknowledged(self, message: str) -> bool:
        return not (self._path / "in" / message).exists()

    async def say_as_stranger(self, text: str) -> None:
        self._write(f"eve.{len(self._texts):03}.txt", text)

    async def answers_to_stranger(self) -> list[str]:
        return self._read("eve")

    def _write(self, name: str, text: str) -> str:
        self._texts[name] = text
        (self._path / f"{name}.new").write_text(text)
        (self._path / f"{name}.new").rename(self._path / "in" / name)
        return name

    def _read(self, person: str) -> list[str]:
        return [path.read_text() for path in sorted((self._path / "out" / person).glob("*.txt"))]


class TestFolder(ChannelContract):
    """The folder channel, turned on by its table."""

    @pytest.fixture
    def platform(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
        table = {"path": str(tmp_path / "post"), "allow": ["ada"]}
        monkeypatch.setenv("HOLDFAST_CHANNELS", json.dumps({"folder": table}))
        return FolderPlatform(tmp_path / "post")
