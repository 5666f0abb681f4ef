"""Hooks of MkDocs: pages link to files of the project outside of docs/, which the site copies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Links that leave docs/, from any depth of it.
_OUTSIDE = re.compile(r"\]\((?:\.\./)+((?:deploy|examples|tools|[A-Z]+\.md)[^)#]*)")
COPIES = "files"


def on_files(files: Any, config: Any) -> Any:
    """Add the files that pages link to."""
    from mkdocs.structure.files import File

    linked = {
        target
        for page in (ROOT / "docs").glob("**/*.md")
        for target in _OUTSIDE.findall(page.read_text())
    }
    for target in sorted(linked):
        files.append(File.generated(config, f"{COPIES}/{target}.txt", content=_content(target)))
    return files


def _content(target: str) -> str:
    """Return the text of a file, or the names of the files in a folder."""
    source = ROOT / target
    if source.is_file():
        return source.read_text()
    return "".join(f"{path.relative_to(ROOT)}\n" for path in sorted(source.glob("**/*.*")))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs/ to the copies."""
    depth = page.file.src_uri.count("/")
    return _OUTSIDE.sub(lambda found: f"]({'../' * depth}{COPIES}/{found[1]}.txt", markdown)
