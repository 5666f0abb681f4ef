"""The public names: each has a docstring, and type checkers of other projects see them."""

from __future__ import annotations

import ast
import inspect
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.type_check import check_types, environment_of_another_project

SNIPPET = """
from datetime import timedelta

from holdfast import AgentHarness, Reply, Turn

app = AgentHarness()


@app.agent("coder", timeout=timedelta(minutes=5), lane="agent")
async def coder(turn: Turn) -> str:
    return turn.text


@app.agent
async def writer(turn: Turn) -> Reply:
    return Reply("here", files="a.txt")


@app.agent("tester", timout=5)
async def tester(turn: Turn) -> str:
    return turn.txt
"""


def _documented_constants() -> set[str]:
    """Names of our modules that are assigned, with a text below."""
    found = set()
    for file in Path(holdfast.__file__).parent.rglob("*.py"):
        body = ast.parse(file.read_text()).body
        for statement, following in itertools.pairwise(body):
            if isinstance(statement, ast.Assign) and isinstance(following, ast.Expr):
                found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return found


CONSTANTS = _documented_constants()


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(holdfast, name)
    if not inspect.isclass(value) and not inspect.isfunction(value):
        assert name in CONSTANTS
        return
    # Do not count the docstring of a base class.
    doc = vars(value)["__doc__"] if inspect.isclass(value) else value.__doc__
    assert doc
    # A dataclass without a docstring gets its signature as one.
    assert not doc.startswith(f"{name}(")


FIND = "from importlib.machinery import PathFinder; print(PathFinder.find_spec('holdfast').origin)"


def test_issue_14_28_the_package_is_found_by_a_plain_path_without_an_import_hook(
    tmp_path: Path,
) -> None:
    """Type checkers run no import hook: pyright and mypy read the folders on the path."""
    found = subprocess.run(
        [sys.executable, "-c", FIND],
        cwd=tmp_path,
        env=environment_of_another_project(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert Path(found.stdout.strip()) == Path(holdfast.__file__), found.stderr


def test_mypy_sees_the_package_from_another_folder_and_finds_wrong_options(tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text(SNIPPET)
    checked = check_types(tmp_path)
    assert "import-not-found" not in checked.stdout
    assert "import-untyped" not in checked.stdout
    assert 'Unexpected keyword argument "timout"' in checked.stdout
    assert '"Turn" has no attribute "txt"' in checked.stdout
    wrong = {line.split(":")[1] for line in checked.stdout.splitlines() if ": error: " in line}
    assert wrong == {"19", "21"}, checked.stdout
