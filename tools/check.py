"""Rules of the house that no linter knows: sizes, named queries, and what documents refer to."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("holdfast", "tests", "tools", "bench", "examples")
MODULE_LINES = 400
FUNCTION_LINES = 40

NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
QUERY = re.compile(r"^-- name: (\w+)", re.MULTILINE)
REFERENCE = re.compile(r"([\w./-]+\.(?:py|sql))::(\w+(?:\.\w+)*)")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def main() -> int:
    faults = [*sizes(ROOT), *queries(ROOT), *scripts(ROOT), *references(ROOT)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def sizes(root: Path) -> Iterator[str]:
    """Modules of more than 400 lines of code, and functions of more than 40 lines."""
    for path in modules(root):
        text = path.read_text()
        lines = code_lines(text)
        if lines > MODULE_LINES:
            yield f"{path.relative_to(root)}: {lines} lines of code; a module has at most {MODULE_LINES}"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    place = f"{path.relative_to(root)}:{node.lineno}"
                    yield f"{place}: {node.name} has {lines} lines; a function has at most {FUNCTION_LINES}"


def code_lines(text: str) -> int:
    """Count the lines that hold code: a cap on prose and blank lines would punish explanation."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE and not _is_docstring(token):
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def _is_docstring(token: tokenize.TokenInfo) -> bool:
    return token.type == tokenize.STRING and token.line.strip().startswith(
        token.string.split("\n")[0]
    )


def scripts(root: Path) -> Iterator[str]:
    """Migration scripts whose numbers do not count up from 000, as after two branches took the same one."""
    for folder in ("incremental", "idempotent", "sqlite"):
        names = sorted(
            path.name for path in (root / "holdfast" / "migrations" / folder).glob("*.sql")
        )
        for number, name in enumerate(names):
            if not name.startswith(f"{number:03}-"):
                yield f"migrations/{folder}/{name}: the number must be {number:03}"
                break


def queries(root: Path) -> Iterator[str]:
    """Named queries that are defined twice or never used, and uses of names that are not defined."""
    store = root / "holdfast" / "store"
    defined = Counter(
        name for path in store.glob("sqlite/*.sql") for name in QUERY.findall(path.read_text())
    )
    used = {word for path in store.glob("**/*.py") for word in words(ast.parse(path.read_text()))}
    asked = {
        name for path in store.glob("**/*.py") for name in lookups(ast.parse(path.read_text()))
    }
    for name, times in defined.items():
        if times > 1:
            yield f"query {name} is defined {times} times"
        if name not in used:
            yield f"query {name} is defined and never used"
    for name in sorted(asked - set(defined)) if defined else ():
        yield f"query {name} is used and not defined"


def references(root: Path) -> Iterator[str]:
    """`path::symbol` and relative links in documents that lead nowhere."""
    for page in pages(root):
        text = page.read_text()
        for path, symbol in REFERENCE.findall(text):
            if not resolves(root, path, symbol):
                yield f"{page.relative_to(root)}: {path}::{symbol} does not exist"
        for target in LINK.findall(text):
            if not (page.parent / target).exists():
                yield f"{page.relative_to(root)}: the link to {target} leads nowhere"


def modules(root: Path) -> Iterator[Path]:
    for folder in CODE:
        yield from sorted((root / folder).glob("**/*.py"))


def pages(root: Path) -> Iterator[Path]:
    yield from sorted(root.glob("*.md"))
    for folder in ("docs", "examples"):
        yield from sorted((root / folder).glob("**/*.md"))


def words(tree: ast.AST) -> Iterator[str]:
    """Every string and attribute name: however a query is looked up, its name is one of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Attribute):
            yield node.attr


def lookups(tree: ast.AST) -> Iterator[str]:
    """Names in `SQL["name"]` and `queries["name"]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            name = (
                node.value.attr
                if isinstance(node.value, ast.Attribute)
                else getattr(node.value, "id", "")
            )
            if name.lower().lstrip("_") in ("queries", "sql") and isinstance(node.slice.value, str):
                yield node.slice.value


def resolves(root: Path, path: str, symbol: str) -> bool:
    """Paths count from the root or from the package, as people write them."""
    found = next(
        (folder / path for folder in (root, root / "holdfast") if (folder / path).is_file()), None
    )
    if found is None:
        return False
    if found.suffix == ".sql":
        return re.search(rf"\b{re.escape(symbol)}\b", found.read_text()) is not None
    scopes: list[ast.AST] = [ast.parse(found.read_text())]
    for name in symbol.split("."):
        scopes = [
            node
            for scope in scopes
            for node in ast.walk(scope)
            if node is not scope and defines(node, name)
        ]
    return bool(scopes)


def defines(node: ast.AST, name: str) -> bool:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name == name
        case ast.Assign():
            return any(
                isinstance(target, ast.Name) and target.id == name for target in node.targets
            )
        case ast.AnnAssign():
            return isinstance(node.target, ast.Name) and node.target.id == name
    return False


if __name__ == "__main__":
    sys.exit(main())
