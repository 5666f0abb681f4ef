"""`holdfast demo crash` in a browser: the worker is killed, and the answer goes on."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.async_api import Browser, expect

from holdfast.testing.crash.agent import CHAPTERS
from tests.browser.accessibility import poor_contrasts, unnamed_controls
from tests.cli.shell import Shell, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDS_WITHIN = 60_000
"""Milliseconds."""


def whole_answer() -> str:
    chapters = "".join(f"{name.capitalize()}: {text} \n\n" for name, text in CHAPTERS.items())
    return f"Here is the report of the harbour.\n\n{chapters}Signed: the harbour office"


async def running_workers(address: str) -> list[int]:
    """Return the process ids of the workers that run."""
    base = address.removesuffix("/demo")
    with await asyncio.to_thread(urlopen, f"{base}/demo/workers") as answer:
        pids: list[int] = json.load(answer)["running"]
        return pids


async def test_a_killed_worker_is_replaced_in_view_and_no_step_runs_again(
    browser: Browser, tmp_path: Path
) -> None:
    with Shell(tmp_path).running("demo", "crash", "--port", "0") as running:
        context = await browser.new_context()
        page = await context.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto(running.address)
        await page.get_by_role("button", name="Ask for the report").click()
        answer = page.locator("#answer")
        await expect(answer).to_contain_text("Wind:", timeout=ENDS_WITHIN)
        await page.get_by_role("button", name="Kill the worker").click()
        await expect(page.locator("#workers .killed")).to_have_count(1)
        # A reload in the middle shows the same answer again.
        await page.reload()
        state = page.locator("#state")
        await expect(state).to_have_text("The answer is complete.", timeout=ENDS_WITHIN)
        assert await answer.text_content() == whole_answer()
        rows = page.locator("#steps tr")
        await expect(rows).to_have_count(len(CHAPTERS) + 1)
        await expect(rows.nth(0)).to_have_text(re.compile("tides.*done.*1"))
        await expect(rows.last).to_have_text(re.compile("sign.*done.*2"))
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            assert await poor_contrasts(page) == [], scheme
            assert await unnamed_controls(page) == [], scheme
        assert complaints == []
        await context.close()
        workers = await running_workers(running.address)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
