"""Forgetting a person removes the content of their uploads, at last."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.chat import ChatStore, SentFiles
from holdfast.errors import HoldfastError
from holdfast.store.files import write_file
from holdfast.store.forget import forget
from holdfast.store.memory import open_knowledge, open_observations
from holdfast.store.uploads import Files, StoredFile, upload_path

IDENTITY = "web:id:ann"
SUBJECT = f"default:USER:{IDENTITY}"


async def test_an_upload_that_could_not_be_removed_goes_with_the_second_try(
    store: ChatStore, tmp_path: Path
) -> None:
    now = await store.now()
    for name in ("file_1", "file_2"):
        file = StoredFile(id=name, owner="ann", name=name, type="", size=1, created_at=now)
        await Files(store).add(file)
        sent = SentFiles(
            ids=(name,), owner="ann", message_id="m1", conversation="c", subject=SUBJECT
        )
        await store.put([], records=[sent])
        write_file(upload_path(tmp_path, name), b"x")
    upload_path(tmp_path, "file_2").unlink()
    stuck = upload_path(tmp_path, "file_2") / "folder"
    stuck.mkdir(parents=True)

    async def forget_them() -> dict[str, int]:
        observations, knowledge = open_observations(store), open_knowledge(store)
        return await forget(observations, knowledge, "default", "USER", IDENTITY, files=tmp_path)

    with pytest.raises(HoldfastError, match="cannot remove a file"):
        await forget_them()
    stuck.rmdir()
    stuck.parent.rmdir()
    write_file(upload_path(tmp_path, "file_2"), b"x")
    assert (await forget_them())["files"] == 1
    assert not upload_path(tmp_path, "file_2").exists()
    assert await Files(store).find(["file_1", "file_2"]) == []
