"""Only files below the files root are ever sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.files import relative_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    (root / "plots").mkdir(parents=True)
    (root / "plots" / "a b.png").write_text("x")
    (root / "..hidden").write_text("x")
    (tmp_path / "secret").write_text("x")
    (tmp_path / "files-too").mkdir()
    (tmp_path / "files-too" / "x").write_text("x")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    (root / "in").symlink_to(root / "plots" / "a b.png")
    (root / "loop").symlink_to(root / "loop")
    return root


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("plots/a b.png", "plots/a b.png"),
        ("./plots/./a b.png", "plots/a b.png"),
        ("plots/../plots/a b.png", None),
        ("in", None),
        ("..hidden", "..hidden"),
        ("{root}/plots/a b.png", "plots/a b.png"),
        ("plots", None),
        ("missing", None),
        ("", None),
        ("../secret", None),
        ("plots/../../secret", None),
        ("{root}/../secret", None),
        ("{root}-too/x", None),
        ("/etc/passwd", None),
        ("out", None),
        ("up/secret", None),
        ("loop", None),
        ("nul\x00", None),
        ("x" * 5000, None),
        ("~/secret", None),
    ],
)
def test_a_path_is_resolved_below_the_root_or_refused(
    root: Path, name: str, found: str | None
) -> None:
    assert relative_path(root, name.replace("{root}", str(root))) == found


def test_a_missing_root_has_no_files(tmp_path: Path) -> None:
    assert relative_path(tmp_path / "none", "x") is None


def test_the_root_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert relative_path(tmp_path / "link", "plots/a b.png") == "plots/a b.png"
