"""Measure the time from Enter on the chat page to the first visible text of the answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

from playwright.async_api import Page, async_playwright

from bench.engine import Engine
from bench.latency import percentile
from bench.process import ROOT, run_process
from bench.row import Row
from bench.scale import Scale

PORT = 38778
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FLUSH = 280.0
"""Milliseconds between two flushes of a text: a delay that is ours by design."""
# The page's own clock, from the key to the mutation that shows the first text.
ASK = """(text) => new Promise((resolve) => {
  const seen = document.querySelectorAll(".bubble.theirs").length;
  const log = document.getElementById("log");
  const begun = performance.now();
  new MutationObserver((_, observer) => {
    const bubbles = document.querySelectorAll(".bubble.theirs");
    if (bubbles.length > seen && bubbles[bubbles.length - 1].textContent) {
      observer.disconnect();
      resolve(performance.now() - begun);
    }
  }).observe(log, { childList: true, subtree: true, characterData: true });
  document.getElementById("text").value = text;
  document.getElementById("composer").requestSubmit();
})"""


async def first_token(engine: Engine, scale: Scale) -> AsyncIterator[Row]:
    """Measure in a real Chromium; without one, leave the row out."""
    path = _chromium()
    if path is None:
        return
    options = ("--port", str(PORT), "--no-auth", "--app", "bench.apps:streaming")
    with engine.fresh() as url, run_process("up", url, *options):
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
            times = await _ask(await browser.new_page(), scale.watched)
            await browser.close()
    yield Row(
        store=engine.name,
        what=f"first text on the page, p50 of {len(times)}",
        measured=percentile(times, 0.5),
        against="one flush",
        beside=FLUSH,
        unit="ms",
    )


def _chromium() -> str | None:
    found = subprocess.run([ROOT / "tools" / "chromium"], capture_output=True, text=True)
    if found.returncode:
        print(f"first-token is left out: {found.stderr.strip()}", file=sys.stderr)
        return None
    return found.stdout.strip().splitlines()[-1]


async def _ask(page: Page, count: int) -> list[float]:
    await page.goto(f"http://127.0.0.1:{PORT}")
    await page.wait_for_selector("#line[data-state=live]")
    times = []
    for nth in range(count + 1):
        times.append(float(await page.evaluate(ASK, f"question {nth}")))
        await page.locator(".exchange:not([data-state=answered])").first.wait_for(state="detached")
    # The first one warms the page up.
    return times[1:]
