"""A Chromium for the commands of this project."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run the Chromium that tools/chromium finds or installs."""
    script = Path(__file__).with_name("chromium")
    found = await asyncio.to_thread(subprocess.check_output, [script])
    path = found.decode().split()[-1]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()
