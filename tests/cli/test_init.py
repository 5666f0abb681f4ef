"""`holdfast init`: a file with every setting, made from the settings themselves."""

from __future__ import annotations

import re

from holdfast.settings import Settings, load
from holdfast.settings.sample import sections
from holdfast.settings.table import tables_in
from tests.cli.shell import Shell

SETTING = re.compile(r"^#(\w+) = ", re.MULTILINE)
HEADER = re.compile(r"^#(\[.+\])$", re.MULTILINE)
PLAIN = [name for name, field in Settings.model_fields.items() if not tables_in(field)]


def test_every_setting_is_there_once_with_a_text(alone: Shell) -> None:
    assert alone.out("init") == "wrote holdfast.toml\n"
    text = (alone.folder / "holdfast.toml").read_text()
    assert SETTING.findall(text)[: len(PLAIN)] == PLAIN
    assert HEADER.findall(text) == [section.header for section in sections()]
    assert len(re.findall(r"^# .+\n#\w+ = ", text, re.MULTILINE)) == len(SETTING.findall(text))


def test_as_written_it_changes_nothing_and_every_line_of_it_is_right(alone: Shell) -> None:
    alone.out("init")
    path = alone.folder / "holdfast.toml"
    as_written = load(config=path, home=alone.folder)
    assert as_written.model_fields_set == {"home"}
    path.write_text(HEADER.sub(r"\1", SETTING.sub(r"\1 = ", path.read_text())))
    uncommented = load(config=path, home=alone.folder)
    for name, field in Settings.model_fields.items():
        if not field.examples and not tables_in(field):
            assert getattr(uncommented, name) == getattr(as_written, name), name


def test_an_existing_file_is_kept_unless_forced(alone: Shell) -> None:
    path = alone.write("holdfast.toml", "workers = 3\n")
    assert "--force" in alone.refused("init")
    assert path.read_text() == "workers = 3\n"
    alone.out("init", "--force")
    assert "workers = 5" in path.read_text()


def test_another_file_can_be_named(alone: Shell) -> None:
    alone.out("init", "--config", "other.toml")
    assert (alone.folder / "other.toml").exists()
    assert "cannot write no/such/folder.toml" in alone.refused(
        "init", "--config", "no/such/folder.toml"
    )
