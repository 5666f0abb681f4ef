"""The HTML of a Markdown text: parse, change a few tokens, render, sanitise."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from html import escape
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from holdfast.api.markdown.code import CLASSES, Highlighter

LONGEST = 128 * 1024
"""Characters that are read as Markdown; the rest follows as plain text. The worst text takes about
30 microseconds a character."""
HIGHLIGHTER = "highlighter"
"""Key in the environment of one text: its Highlighter, which holds the CPU budget."""

OWN_FILE = re.compile(r"/api/files/[A-Za-z0-9_-]{1,60}")
FOREIGN = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)
ADDRESS = re.compile(r"""\bhttps?://[^\s<>"'`|\\^{}\[\]]{1,2000}""", re.IGNORECASE)
ENDS_NO_ADDRESS = ".,:;!?*_~)"
TASK = re.compile(r"\[([ xX])\][ \t]")

TAGS = {
    "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "strong",
    "em", "s", "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "a", "img", "span",
}  # fmt: skip
ATTRIBUTES = {
    "a": {"href", "rel", "target"},
    "img": {"src", "alt", "loading"},
    "ol": {"start"},
    "pre": {"data-language"},
    "span": {"role", "aria-label"},
}
ALIGNED = {"left", "center", "right"}
ALLOWED_CLASSES = {
    "pre": {"code", "plain"},
    "ul": {"tasks"},
    "li": {"task", "done"},
    "span": {"box", *CLASSES},
    "th": ALIGNED,
    "td": ALIGNED,
}


def to_html(text: str) -> str:
    """Return the HTML of a text. Its own tags and links of other schemes are shown as text, images
    of other hosts as links."""
    # Half a surrogate pair cannot be sent to a page.
    text = text.encode(errors="replace").decode()
    cut = len(text) if len(text) <= LONGEST else _end_of_line(text, LONGEST)
    environment = {HIGHLIGHTER: Highlighter()}
    html = str(_MARKDOWN.render(text[:cut], environment))
    if cut < len(text):
        html += f'<pre class="plain">{escape(text[cut:], quote=False)}</pre>'
    return nh3.clean(
        html,
        tags=TAGS,
        attributes=ATTRIBUTES,
        allowed_classes=ALLOWED_CLASSES,
        url_schemes={"http", "https", "mailto"},
        link_rel=None,
    )


def _end_of_line(text: str, limit: int) -> int:
    """Return the end of the last whole line within a limit, or the limit."""
    return text.rfind("\n", 0, limit) + 1 or limit


def _change_tokens(state: StateCore) -> None:
    """Change what the parser found: tasks, images and bare addresses."""
    _mark_tasks(state.tokens)
    for token in state.tokens:
        if token.type == "inline" and token.children:
            token.children = list(_changed_inline(token.children))


def _changed_inline(tokens: Sequence[Token]) -> Iterator[Token]:
    depth = 0
    for token in tokens:
        depth += {"link_open": 1, "link_close": -1}.get(token.type, 0)
        if token.type == "image" and not OWN_FILE.fullmatch(str(token.attrs.get("src"))):
            yield from _image_as_link(token, is_in_link=depth > 0)
        elif token.type == "text" and depth == 0 and "://" in token.content:
            yield from _with_links(token.content)
        else:
            yield token


def _image_as_link(image: Token, *, is_in_link: bool) -> Iterator[Token]:
    """Show an image of another host as a link: loading it would tell that host who reads."""
    address = str(image.attrs.get("src") or "")
    label = _text(image.content or address)
    if is_in_link:
        yield label
    else:
        yield from _link(address, label)


def _with_links(text: str) -> Iterator[Token]:
    """Make links of the bare addresses in a text."""
    at = 0
    for found in ADDRESS.finditer(text):
        address = found[0].rstrip(ENDS_NO_ADDRESS)
        # A closing bracket belongs to the address if an opening one does.
        if found[0].startswith(")", len(address)) and "(" in address:
            address += ")"
        yield _text(text[at : found.start()])
        yield from _link(address, _text(address))
        at = found.start() + len(address)
    yield _text(text[at:])


def _link(address: str, label: Token) -> Iterator[Token]:
    yield Token("link_open", "a", 1, attrs={"href": address})
    yield label
    yield Token("link_close", "a", -1)


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _mark_tasks(tokens: Sequence[Token]) -> None:
    """Make tasks of list items that begin with `[ ]` or `[x]`."""
    lists: list[Token] = []
    for at, token in enumerate(tokens):
        if token.type in ("bullet_list_open", "ordered_list_open"):
            lists.append(token)
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            lists.pop()
        elif (
            token.type == "inline"
            and tokens[at - 2].type == "list_item_open"
            and _mark_task(tokens[at - 2], token.children or [])
            and lists[-1].tag == "ul"
        ):
            lists[-1].attrSet("class", "tasks")


def _mark_task(item: Token, children: list[Token]) -> bool:
    """Make a task of one list item, if it begins like one. Returns whether it does."""
    found = TASK.match(children[0].content) if children and children[0].type == "text" else None
    if found is None:
        return False
    is_done = found[1] != " "
    item.attrSet("class", "task done" if is_done else "task")
    children[0].content = children[0].content[found.end() :]
    children.insert(0, Token("task_box", "span", 0, meta={"is_done": is_done}))
    return True


class _Renderer(RendererHTML):
    """Renders the tokens that differ from plain Markdown."""

    def fence(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,
        env: MutableMapping[str, Any],
    ) -> str:
        token = tokens[idx]
        highlighter: Highlighter = env[HIGHLIGHTER]
        return highlighter.block(token.content, token.info)

    def code_block(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,
        env: MutableMapping[str, Any],
    ) -> str:
        return self.fence(tokens, idx, options, env)

    def link_open(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,
        env: MutableMapping[str, Any],
    ) -> str:
        token = tokens[idx]
        token.attrs = {
            "href": token.attrs.get("href", ""),
            "rel": "noopener noreferrer nofollow",
            "target": "_blank",
        }
        return self.renderToken(tokens, idx, options, env)

    def image(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,
        env: MutableMapping[str, Any],
    ) -> str:
        token = tokens[idx]
        source, alt = escape(str(token.attrs["src"])), escape(token.content)
        return f'<img src="{source}?inline=true" alt="{alt}" loading="lazy">'

    def task_box(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,
        env: MutableMapping[str, Any],
    ) -> str:
        label = "done" if tokens[idx].meta["is_done"] else "open"
        return f'<span class="box" role="img" aria-label="{label}"></span> '

    def th_open(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,
        env: MutableMapping[str, Any],
    ) -> str:
        token = tokens[idx]
        style = str(token.attrs.pop("style", ""))
        if style:
            token.attrs["class"] = style.removeprefix("text-align:")
        return self.renderToken(tokens, idx, options, env)

    td_open = th_open


class _Parser(MarkdownIt):
    """A parser that accepts only web and mail addresses, and our own files, as links."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the name is the library's
        """Say whether an address may be a link; else its Markdown is shown as text."""
        return FOREIGN.match(url) is not None or OWN_FILE.fullmatch(url) is not None


def _parser() -> MarkdownIt:
    options = {"html": False, "breaks": True, "linkify": False}
    parser = _Parser("commonmark", options, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("page", _change_tokens)
    return parser


_MARKDOWN = _parser()
