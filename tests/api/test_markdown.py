"""Markdown as HTML: what is shown, what never is, and the time that it takes."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable

import pytest

from holdfast.api import markdown
from holdfast.api.markdown import render_all, render_html
from holdfast.api.markdown.code import CPU_SECONDS, LANGUAGES, Highlighter
from holdfast.api.markdown.page import LONGEST, to_html
from tests.growth import superlinear
from tests.hostile import UNITS

TAG = re.compile(r"<(/?)([a-z0-9]+)([^<>]*)>")
LOADED = re.compile(r"\b(?:src|srcset|style|poster|background|data)=")
SHOWN_AS_TEXT = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<iframe src=https://evil.example></iframe>",
    '<a href="https://evil.example" onclick="alert(1)">x</a>',
    "<style>@import 'https://evil.example'</style>",
    "<base href=https://evil.example>",
    "<form action=https://evil.example><input></form>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
)
HOSTILE_LINKS = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\tscript:alert(1)",
    "&#106;avascript:alert(1)",
    "&#x6A&#x61;vascript:alert(1)",
    "\x01javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "file:///etc/passwd",
    "blob:https://a.example/1",
    "//evil.example/x",
    "/\\evil.example",
    "/logout",
    "/api/files/../message",
    "/api/files/a?b",
    "?c=1",
    "#top",
)


def tags(html: str) -> set[str]:
    return {found[2] for found in TAG.finditer(html)}


def test_tables_tasks_links_and_struck_text_are_shown() -> None:
    html = to_html(
        "| a | b |\n|:-:|--:|\n| 1 | ~~2~~ |\n\n- [ ] open\n- [x] done\n\nhttps://a.example/b_c."
    )
    assert '<th class="center">a</th>' in html
    assert '<td class="right"><s>2</s></td>' in html
    assert (
        '<li class="task done"><span class="box" role="img" aria-label="done"></span> done</li>'
        in html
    )
    assert '<span class="box" role="img" aria-label="open"></span> open' in html
    link = '<a href="https://a.example/b_c" rel="noopener noreferrer nofollow" target="_blank">'
    assert f"{link}https://a.example/b_c</a>." in html


def test_code_is_highlighted_by_classes_and_keeps_its_text() -> None:
    code = 'def f():\n\n    return "<b> & c"\n'
    html = to_html(f"```py\n{code}```")
    assert html.startswith('<pre class="code" data-language="python"><code><span class="hl-k">def')
    shown = TAG.sub("", html).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert shown.rstrip("\n") == code.rstrip("\n")
    assert "style=" not in html


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_has_a_lexer_that_keeps_the_text(language: str) -> None:
    code = "\n a = 'x' # <y>\n\n{b: [1, 2]}\n"
    html = Highlighter().block(code, language)
    shown = TAG.sub("", html).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert shown == f"{code}\n"


def test_code_of_no_known_language_is_plain() -> None:
    assert to_html("```klingon\nqapla'\n```") == (
        '<pre class="code" data-language="klingon"><code>qapla\'\n</code></pre>\n'
    )
    assert to_html('```"><script>\nx\n```') == '<pre class="code"><code>x\n</code></pre>\n'


@pytest.mark.parametrize("text", SHOWN_AS_TEXT)
def test_tags_in_a_text_are_shown_and_never_inserted(text: str) -> None:
    for written in (
        text,
        f"- {text}",
        f"`{text}`",
        f"```html\n{text}\n```",
        f"[{text}](https://a.b)",
    ):
        html = to_html(written)
        assert tags(html) <= {"p", "ul", "li", "code", "pre", "span", "a"}
        assert not re.search(r"<[^>]*\bon[a-z]+=", html)
        assert not LOADED.search(TAG.sub(lambda found: found[3], html)) or "&lt;" in html


@pytest.mark.parametrize("address", HOSTILE_LINKS)
def test_a_hostile_address_is_no_link(address: str) -> None:
    for written in (
        f"[x]({address})",
        f"[x](<{address}>)",
        f"<{address}>",
        f"[x][1]\n\n[1]: {address}",
    ):
        assert not re.search(r'href="(?!https://a\.example/1")', to_html(written)), written
        assert "<img" not in to_html(f"!{written}"), written


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/x.png",
        "http://127.0.0.1:3777/api/files/file_1",
        "//evil.example/x.png",
    ],
)
def test_an_image_of_another_host_is_a_link_at_most(address: str) -> None:
    for written in (
        f"![cat]({address})",
        f"[![cat]({address})](https://a.example)",
        f"![cat][1]\n\n[1]: {address}",
    ):
        html = to_html(written)
        assert "<img" not in html
        assert "cat" in html


def test_an_image_of_our_own_is_shown() -> None:
    html = to_html('![a "cat"](/api/files/file_abc)')
    assert (
        '<img src="/api/files/file_abc?inline=true" alt="a &quot;cat&quot;" loading="lazy">' in html
    )


def test_deeply_nested_lists_and_quotes_are_bounded() -> None:
    nested = "\n".join("  " * depth + "- a" for depth in range(300))
    for text in (nested, "> " * 5000 + "a", "- " * 5000 + "a", "[" * 5000, "*a " * 5000):
        html = to_html(text)
        assert html.count("<ul>") + html.count("<blockquote>") <= 100


def test_a_longer_text_ends_as_plain_text() -> None:
    html = to_html("**b**\n" * (LONGEST // 6 + 100))
    head, _, tail = html.partition('<pre class="plain">')
    assert "<strong>b</strong>" in head
    assert tail.count("**b**") > 50
    assert "<strong>" not in tail


REPEATED: dict[str, Callable[[int], str]] = {
    unit: lambda size, unit=unit: unit * (size // len(unit))  # type: ignore[misc]
    for unit in (
        *UNITS,
        *("![", "[a](", "[a](<b", "|a|\n|-|\n", "- a\n", "> a\n", "a**b", "*a_ ", "![[]()", "<!--"),
        *("&amp;", "https://a.b/c ", "- [ ] a\n", "[a]: b\n", "```\n", "```py\na b\n```\n"),
    )
}  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("unit", REPEATED, ids=repr)
def test_the_time_to_render_is_linear_in_the_text(unit: str) -> None:
    assert superlinear(to_html, REPEATED[unit]) == ""


@pytest.mark.parametrize("language", ["java", "csharp", "ruby", "python", "html"])
def test_a_slow_lexer_is_cut_off(language: str) -> None:
    for unit in ("a ", "a\n ", "<!--", "[a]("):
        lines = "\n".join([unit * (400 // len(unit))] * 35)
        began_at = time.thread_time()
        html = to_html(f"```{language}\n{lines}\n```\n" * 6)
        assert time.thread_time() - began_at < CPU_SECONDS + 2
        assert html.count("<pre") == 6


async def test_a_long_text_is_rendered_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    render = markdown._render

    def noted(text: str) -> str:
        threads.append(threading.current_thread().name)
        return render(text)

    monkeypatch.setattr(markdown, "_render", noted)
    await render_html("short, and new")
    await render_html("a *b* " * 170_000)
    assert threads[0] == threading.current_thread().name
    assert threads[1].startswith("markdown")


async def test_others_go_on_while_a_megabyte_is_rendered() -> None:
    async with asyncio.TaskGroup() as tasks:
        rendering = tasks.create_task(render_html("- a\n" * 262_144))
        turns = 0
        while not rendering.done():
            await asyncio.sleep(0)
            turns += 1
    assert turns > 10
    assert len(rendering.result()) > 1_000_000


async def test_texts_are_rendered_in_their_order() -> None:
    texts = [f"**{number}**" for number in range(2000)]
    assert await render_all(texts) == [f"<p><strong>{n}</strong></p>\n" for n in range(2000)]
