"""Steps and measurements that tests of several pages share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page, expect

from tests.browser.server import Server

# Finds the text with the least contrast by the formula of WCAG, including translucent colours.
# Text that a person cannot see at all (hidden, or fully transparent until hovered) is left out.
CONTRAST = """() => {
  const read = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, below) =>
    below.map((value, n) => n < 3 ? top[n] * top[3] + value * (1 - top[3]) : 1);
  const ground = (node) => {
    if (!node) return read(getComputedStyle(document.documentElement).backgroundColor);
    const own = read(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(node.parentElement));
  };
  const opacity = (node) =>
    node ? Number(getComputedStyle(node).opacity) * opacity(node.parentElement) : 1;
  const linear = (value) =>
    value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = (color) => {
    const [r, g, b] = color.map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const isText = (node) => node.nodeType === 3 && node.data.trim();
  const isSeen = (node) => node.getClientRects().length && !node.closest(".hidden-text, [disabled]")
    && getComputedStyle(node).visibility === "visible" && opacity(node) > 0;
  const visible = [...document.querySelectorAll("body *")].filter((node) =>
    [...node.childNodes].some(isText) && isSeen(node));
  return visible.map((node) => {
    const below = ground(node);
    const [red, green, blue, alpha] = read(getComputedStyle(node).color);
    const a = light(over([red, green, blue, alpha * opacity(node)], below));
    const b = light(below);
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), `${node.tagName}.${node.className}`];
  }).sort((one, other) => one[0] - other[0])[0];
}"""
# Every control that a person can reach, without a name that assistive technology could read out.
NAMELESS = """() => [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, dialog, [role], [tabindex='0']")]
  .filter((node) => node.getClientRects().length && node.getAttribute("role") !== "separator")
  .filter((node) => {
    const labels = [...(node.labels ?? [])].map((one) => one.textContent).join("");
    const text = node.getAttribute("aria-label") || labels || node.textContent || node.alt || "";
    return !text.trim();
  }).map((node) => node.outerHTML.slice(0, 200))"""
# Keeps the durations of tasks over 50 ms.
LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map(
  (entry) => entry.duration))).observe({ type: "longtask", buffered: true });
"""


async def say(page: Page, text: str, agent: str | None = None) -> None:
    if agent is not None:
        await page.get_by_label("Agent").select_option(agent)
    await page.get_by_label("Message").fill(text)
    await page.keyboard.press("Enter")


async def is_live(page: Page) -> None:
    await expect(page.locator("#line")).to_have_attribute("data-state", "live")


async def exchanges(page: Page, count: int, state: str = "answered") -> None:
    await expect(page.locator(f".exchange[data-state={state}]")).to_have_count(count)


@asynccontextmanager
async def opened(
    browser: Browser, server: Server, *options: str, **context: Any
) -> AsyncIterator[Page]:
    """Open the chat in a browser of its own, logged in. Errors in the page fail the test."""
    made = await browser.new_context(**({"viewport": {"width": 1100, "height": 750}} | context))
    await made.add_init_script(LONG_TASKS)
    page = await made.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console", lambda one: complaints.append(one.text) if "Content Sec" in one.text else None
    )
    await page.goto(server.login(*(options or ("--name", "tester"))))
    await is_live(page)
    yield page
    assert complaints == []
    await made.close()
