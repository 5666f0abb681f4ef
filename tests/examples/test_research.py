"""The research team, played by scripts and by a local server that speaks as OpenAI does."""

from __future__ import annotations

import asyncio

from tests.agents.dialects import Call, OpenAiChat
from tests.agents.provider_server import serving
from tests.cli.shell import Shell
from tests.examples.conftest import EXAMPLES, Start

EXAMPLE = "research"
QUESTION = "How do bats find insects?"
WISH = "I prefer one sentence."


async def ask(shell: Shell, text: str) -> list[str]:
    out = await asyncio.to_thread(shell.out, "send", text, "--wait")
    return [line for line in out.splitlines() if line]


async def test_the_team_remembers_how_a_person_likes_answers(start: Start, shell: Shell) -> None:
    page = (EXAMPLES / EXAMPLE / "README.md").read_text()
    promised = [line[2:].rstrip("\\") for line in page.splitlines() if line.startswith("> ")]
    async with start("work"):
        assert "190 times a second. (bats.md)" in (await ask(shell, QUESTION))[-1]
        assert await ask(shell, WISH) == ["I will keep that in mind."]
        assert await ask(shell, QUESTION) == promised
    [subject] = shell.json("memory", "list")
    assert subject["observations"] == 1


async def test_the_team_works_with_the_api_of_a_provider(start: Start, shell: Shell) -> None:
    findings = "[@writer: bats.md: they call]"
    model = (
        *(Call("observe", {"content": "Prefers one sentence"}), "Noted."),
        f"I ask. [@reader: {QUESTION}]",
        *(Call("search", {"words": "bats insects"}), f"Here. {findings}"),
        *(Call("memory_recall", {}), "They call. (bats.md)"),
    )
    text = (shell.folder / "holdfast.toml").read_text()
    for name in ("lead", "reader", "writer"):
        text = text.replace(f"script:players:{name}", "local:fake")
    async with serving(OpenAiChat(), *model) as server:
        shell.write("holdfast.toml", text.replace("http://127.0.0.1:11434/v1", server.url))
        async with start("work"):
            await ask(shell, WISH)
            answer = await ask(shell, QUESTION)
    assert answer == ["I ask.", "@reader: Here.", "@writer: They call. (bats.md)"]
    dialect, requests = server.dialect, server.requests
    assert "Echolocation of bats" in dialect.result(requests[4])
    assert dialect.result(requests[6]) == "Prefers one sentence"
    assert "Directed to you" in str(requests[5]["messages"])
