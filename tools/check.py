"""Project rules that no linter knows: sizes, prose, named queries and references in documents."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("holdfast", "tests", "tools", "bench", "examples")
MODULE_LINES = {".py": 400, ".sql": 300, ".js": 400, ".css": 400}
FUNCTION_LINES = 40
USUAL_FUNCTION_LINES = 12
"""Nine of ten functions of the package have at most this many lines of code in their body."""
LINE_LENGTH = 100

# SQL functions that may be longer, and why.
LONG_FUNCTIONS: dict[str, str] = {}

# The migration runner records the bodies of these scripts, so their text must not change.
LAST_RECORDED_SCRIPT = {"incremental": 18, "sqlite": 18}

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
OPENING = re.compile(r"\W*(What|Who|Whoever|Whose)\b", re.IGNORECASE)
SQL_FUNCTION = re.compile(r"create (?:or replace )?(?:function|procedure) ([\w.]+)", re.IGNORECASE)
SQL_BODY = re.compile(r"\$\w*\$")
JS_FUNCTION = re.compile(
    r"( *)(?:.*\bfunction\b\*? ?(\w*).*|.*=>|(?!if|for|while|switch|catch)"
    r"(?:async )?#?(\w+)\(.*\)) \{"
)
PRIVATE_WORDS = re.compile(
    "door|doorway|stone|places?|placed|seat|roster|apology|upkeep|letters|nursery|crew|ailing"
    "|attentive|tell|told|heard|unheard|said|verdict|judge|mended|patience"
)
"""Words that the field does not use in this sense. Nobody would search for them."""
PARTICIPLE = re.compile(
    "[a-z]+ed|found|known|made|shown|given|kept|held|left|lost|seen|sent|taken|written|drawn|died"
)
# Words that only look like a participle, and names that others use: outcomes, methods of the
# store, which are also labels of metrics, and tools for users.
ALLOWED_NAMES = re.compile(
    "embed|[Ff]eed|elapsed|Settled|Lost|claimed|died|finished|held|leased|scripted"
)
NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
IDENTIFIER = {
    ".js": re.compile(r"(?<![.\w])(?:const|let|function|class) (\w+)|(?:this\.|\s#)(\w+)"),
    ".css": re.compile(r"[.#]([a-z][a-z-]*)(?=[^;]*\{)"),
}

COMMENT = {
    ".sql": re.compile(r"(?:^|\s)(--|/\*)"),
    ".js": re.compile(r"(?:^|\s)(//|/\*)"),
    ".css": re.compile(r"(?:^|\s)(/\*)"),
}


def main() -> int:
    faults = [*queries(ROOT), *scripts(ROOT), *references(ROOT), *file_faults(ROOT)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def file_faults(root: Path) -> Iterator[str]:
    yield from python_sizes(root)
    yield from usual_sizes(root)
    yield from other_sizes(root)
    yield from openings(root)
    yield from long_lines(root)
    yield from long_prose(root)
    yield from names(root)


def python_sizes(root: Path) -> Iterator[str]:
    """Yield modules of more than 400 lines of code and functions of more than 40 lines."""
    for path in sources(root, ".py"):
        text = path.read_text()
        yield from module_size(root, path, python_code_lines(text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield from function_size(root, path, node.lineno, node.name, lines)


def usual_sizes(root: Path) -> Iterator[str]:
    """Yield a fault if more than a tenth of the package's functions have over 12 lines of code."""
    paths = (path for path in sources(root, ".py") if path.is_relative_to(root / "holdfast"))
    sizes = sorted(size for path in paths for size in body_sizes(path.read_text()))
    share = sum(size > USUAL_FUNCTION_LINES for size in sizes)
    if share * 10 > len(sizes):
        yield (
            f"{share} of {len(sizes)} functions have more than {USUAL_FUNCTION_LINES} lines of"
            " code; at most a tenth may: give a part of the longest ones a name"
        )


def body_sizes(text: str) -> Iterator[int]:
    """Yield the lines of code in the body of each function, without its docstring."""
    code = lines_of(code_tokens(text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            has_docstring = ast.get_docstring(node) is not None
            start = (first.end_lineno or 0) + 1 if has_docstring else first.lineno
            yield len(code & set(range(start, (node.end_lineno or 0) + 1)))


def other_sizes(root: Path) -> Iterator[str]:
    """Yield SQL, JavaScript and CSS files and functions that are too long."""
    for path in sources(root, ".sql", ".js", ".css"):
        lines = path.read_text().split("\n")
        yield from module_size(root, path, count_code_lines(path.suffix, lines))
        for start, name, length in functions(path.suffix, lines):
            if name not in LONG_FUNCTIONS:
                yield from function_size(root, path, start, name, length)


def module_size(root: Path, path: Path, lines: int) -> Iterator[str]:
    most = MODULE_LINES[path.suffix]
    if lines > most:
        yield f"{path.relative_to(root)}: {lines} lines of code; at most {most}"


def function_size(root: Path, path: Path, line: int, name: str, lines: int) -> Iterator[str]:
    if lines > FUNCTION_LINES:
        position = f"{path.relative_to(root)}:{line}"
        yield f"{position}: {name} has {lines} lines; a function has at most {FUNCTION_LINES}"


def python_code_lines(text: str) -> int:
    """Count the lines that hold code: a cap on prose and blank lines would punish explanation."""
    return len(lines_of(token for token in code_tokens(text) if not _is_docstring(token)))


def code_tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            yield token


def lines_of(tokens: Iterable[tokenize.TokenInfo]) -> set[int]:
    return {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}


def _is_docstring(token: tokenize.TokenInfo) -> bool:
    return token.type == tokenize.STRING and token.line.strip().startswith(
        token.string.split("\n")[0]
    )


def count_code_lines(suffix: str, lines: list[str]) -> int:
    """Count the lines of SQL, JavaScript or CSS that are neither blank nor all comment."""
    number, in_comment = 0, False
    for line in map(str.strip, lines):
        starts_block = line.startswith("/*")
        is_comment = in_comment or starts_block or bool(COMMENT[suffix].match(line))
        number += bool(line) and not is_comment
        in_comment = (in_comment or starts_block) and "*/" not in line
    return number


def functions(suffix: str, lines: list[str]) -> Iterator[tuple[int, str, int]]:
    """Yield the first line, the name and the length of each function."""
    for number, line in enumerate(lines):
        if suffix == ".sql" and (match := SQL_FUNCTION.match(line)):
            yield number + 1, match[1], _sql_length(lines[number:])
        elif suffix == ".js" and (match := JS_FUNCTION.fullmatch(line)):
            end = match[1] + "}"
            length = next((n for n, text in enumerate(lines[number:]) if text.startswith(end)), 0)
            yield number + 1, match[2] or match[3] or "the function", length + 1


def _sql_length(lines: list[str]) -> int:
    """Count the lines up to the end of a body: `$$ … $$`, `begin atomic … end` or `return …`."""
    delimiter = ""
    for number, line in enumerate(lines, start=1):
        for quote in SQL_BODY.findall(line):
            # Other delimiters inside a body are strings of its own.
            if quote == (delimiter or quote):
                delimiter = "" if delimiter else quote
        is_atomic = "begin atomic" in lines[:number]
        if not delimiter and (line == "end;" if is_atomic else line.endswith(";")):
            return number
    return len(lines)


def openings(root: Path) -> Iterator[str]:
    """Yield docstrings and comments that begin with What, Who, Whoever or Whose."""
    for path in sources(root, *MODULE_LINES):
        for line, text in prose(path):
            if match := OPENING.match(text):
                position = f"{path.relative_to(root)}:{line}"
                yield f"{position}: begins with {match[1]!r}; begin with a verb or a noun"


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring and of each comment's beginning."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Expr(value=ast.Constant(value=str(docstring)), lineno=line):
                    yield line, docstring
        comments = [
            (token.start[0], token.line.strip().startswith("#"), token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        ]
    else:
        comments = [
            (number, not line[: match.start(1)].strip(), line[match.end(1) :])
            for number, line in enumerate(text.split("\n"), start=1)
            if (match := COMMENT[path.suffix].search(line))
        ]
    whole_lines = {number for number, whole_line, _ in comments if whole_line}
    for number, whole_line, comment in comments:
        if not (whole_line and number - 1 in whole_lines):
            yield number, comment


def names(root: Path) -> Iterator[str]:
    """Yield names with a private word, and functions and classes named by a bare participle."""
    for path in sources(root, ".py", ".js", ".css"):
        in_package = path.is_relative_to(root / "holdfast")
        for line, name, is_callable in defined_names(path):
            position = f"{path.relative_to(root)}:{line}"
            parts = [part.lower() for part in NAME_PART.findall(name)]
            if word := _private_word(parts):
                yield f"{position}: {name} has the word {word!r}; use a word of the field"
            if is_callable and in_package and _is_participle(name):
                yield f"{position}: {name} is a bare participle; use a verb or a noun"


def defined_names(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield line and name of each definition, and whether it is one of a function or a class."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    if not node.name.startswith("test_"):
                        yield node.lineno, node.name, True
                case ast.arg():
                    yield node.lineno, node.arg, False
                case ast.Name(ctx=ast.Store()):
                    yield node.lineno, node.id, False
                case ast.Attribute(ctx=ast.Store()):
                    yield node.lineno, node.attr, False
        return
    for number, line in enumerate(text.split("\n"), start=1):
        for groups in IDENTIFIER[path.suffix].finditer(line):
            name = next(group for group in groups.groups() if group)
            yield number, name, f"function {name}(" in line


def _private_word(parts: list[str]) -> str | None:
    """Return the first private word of a name; "dead letters" is a term of the field."""
    pairs = zip(["", *parts], parts, strict=False)
    words = (word for before, word in pairs if (before, word) != ("dead", "letters"))
    return next(filter(PRIVATE_WORDS.fullmatch, words), None)


def _is_participle(name: str) -> bool:
    bare = name.strip("_")
    return bool(PARTICIPLE.fullmatch(bare[:1].lower() + bare[1:])) and not ALLOWED_NAMES.fullmatch(
        bare
    )


def long_lines(root: Path) -> Iterator[str]:
    """Yield lines of more than 100 characters."""
    for path in sources(root, *MODULE_LINES):
        for number, line in enumerate(path.read_text().split("\n"), start=1):
            if len(line) > LINE_LENGTH:
                position = f"{path.relative_to(root)}:{number}"
                yield f"{position}: {len(line)} characters; a line has at most {LINE_LENGTH}"


def long_prose(root: Path) -> Iterator[str]:
    """Yield lines of prose in documents of more than 100 characters.

    Tables, code blocks, single words and lines with a link to another site cannot be wrapped."""
    for page in pages(root):
        in_code = False
        for number, line in enumerate(page.read_text().split("\n"), start=1):
            is_fence = line.lstrip().startswith("```")
            in_code ^= is_fence
            is_one_word = " " not in line.strip()
            is_table = line.lstrip().startswith("|")
            is_exempt = in_code or is_fence or is_table or is_one_word or "://" in line
            if len(line) > LINE_LENGTH and not is_exempt:
                position = f"{page.relative_to(root)}:{number}"
                yield f"{position}: {len(line)} characters; prose has at most {LINE_LENGTH}"


def scripts(root: Path) -> Iterator[str]:
    """Yield migration scripts whose numbers leave a gap or repeat, as after a merge."""
    for folder in ("incremental", "idempotent", "sqlite"):
        names = sorted(
            path.name for path in (root / "holdfast" / "migrations" / folder).glob("*.sql")
        )
        for number, name in enumerate(names):
            if not name.startswith(f"{number:03}-"):
                yield f"migrations/{folder}/{name}: the number must be {number:03}"
                break


def queries(root: Path) -> Iterator[str]:
    """Yield named queries defined twice, never used, or used without a definition."""
    store = root / "holdfast" / "store"
    defined = Counter(
        name
        for path in sorted(store.glob("sqlite/*.sql"))
        for name in QUERY.findall(path.read_text())
    )
    used = {word for path in store.glob("**/*.py") for word in words(ast.parse(path.read_text()))}
    looked_up = {
        name for path in store.glob("**/*.py") for name in lookups(ast.parse(path.read_text()))
    }
    for name, times in defined.items():
        if times > 1:
            yield f"query {name} is defined {times} times"
        if name not in used:
            yield f"query {name} is defined and never used"
    for name in sorted(looked_up - set(defined)) if defined else ():
        yield f"query {name} is used and not defined"


def references(root: Path) -> Iterator[str]:
    """Yield each `path::symbol` and relative link in a document that leads nowhere."""
    for page in pages(root):
        text = page.read_text()
        for path, symbol in REFERENCE.findall(text):
            if not resolves(root, path, symbol):
                yield f"{page.relative_to(root)}: {path}::{symbol} does not exist"
        for target in LINK.findall(text):
            if not (page.parent / target).exists():
                yield f"{page.relative_to(root)}: the link to {target} leads nowhere"


def sources(root: Path, *suffixes: str) -> Iterator[Path]:
    """Yield the files of code with these suffixes, without recorded migration scripts."""
    for folder in CODE:
        for path in sorted((root / folder).glob("**/*")):
            if path.suffix in suffixes and not _is_recorded(path):
                yield path


def _is_recorded(path: Path) -> bool:
    last = LAST_RECORDED_SCRIPT.get(path.parent.name)
    in_migrations = path.suffix == ".sql" and path.parent.parent.name == "migrations"
    return in_migrations and last is not None and int(path.name[:3]) <= last


def pages(root: Path) -> Iterator[Path]:
    yield from sorted(root.glob("*.md"))
    for folder in ("docs", "examples"):
        yield from sorted((root / folder).glob("**/*.md"))


def words(tree: ast.AST) -> Iterator[str]:
    """Yield strings and attribute names: a query is looked up by one of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Attribute):
            yield node.attr


def lookups(tree: ast.AST) -> Iterator[str]:
    """Yield the names in `SQL["name"]` and `queries["name"]`."""
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
    """Say whether a file has the symbol; its path counts from the root or from the package."""
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
