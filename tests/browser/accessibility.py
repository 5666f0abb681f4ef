"""Accessibility as assertions: names of controls, contrast of texts, and no sideways scrolling."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page

NAMED_ROLES = {
    *("button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "switch", "tab"),
    *("menuitem", "slider", "spinbutton", "dialog", "img", "navigation", "table", "log"),
}
LEAST_CONTRAST = 4.5
LEAST_CONTRAST_LARGE = 3.0

# Returns [text, ratio, foreground, background] of every visible text with too little contrast.
CONTRAST = """
([least, leastLarge]) => {
  // A colour on its way from one theme to the other is none of the design.
  for (const one of document.getAnimations()) {
    if (one instanceof CSSTransition) one.finish();
  }
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const over = (colors) => {
    pen.clearRect(0, 0, 1, 1);
    for (const color of colors) { pen.fillStyle = color; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backgrounds = (node) => {
    const found = [];
    for (let one = node; one; one = one.parentElement) {
      found.unshift(getComputedStyle(one).backgroundColor);
    }
    return ["white", ...found];
  };
  const isExempt = (node) => node.closest(
    "[aria-disabled=true], :disabled, .pending, .hidden-text, [aria-hidden=true], .skip");
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || isExempt(node) || !node.checkVisibility({ visibilityProperty: true })) continue;
    const style = getComputedStyle(node);
    const color = style.fill && node.closest("svg") ? style.fill : style.color;
    const behind = backgrounds(node);
    const [first, second] = [over([...behind, color]), over(behind)].map(luminance);
    const ratio = (Math.max(first, second) + 0.05) / (Math.min(first, second) + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? leastLarge : least)) {
      poor.push([text.slice(0, 60), ratio.toFixed(2), color, over(behind).join()]);
    }
  }
  return poor;
}
"""


async def poor_contrasts(page: Page) -> list[Any]:
    """Texts whose contrast to what lies behind them is below 4.5:1, large ones below 3:1."""
    found: list[Any] = await page.evaluate(CONTRAST, [LEAST_CONTRAST, LEAST_CONTRAST_LARGE])
    return found


async def unnamed_controls(page: Page) -> list[str]:
    """Controls and landmarks that the accessibility tree of the browser gives no name."""
    session = await page.context.new_cdp_session(page)
    tree = await session.send("Accessibility.getFullAXTree")
    await session.detach()
    return [
        f"{role} {node.get('nodeId')}"
        for node in tree["nodes"]
        if not node.get("ignored")
        and (role := node.get("role", {}).get("value")) in NAMED_ROLES
        and not str(node.get("name", {}).get("value", "")).strip()
    ]


async def sideways_overflow(page: Page) -> int:
    """Pixels by which the page or its scrolling body is wider than the screen."""
    found: int = await page.evaluate(
        """() => Math.max(...[document.documentElement, document.querySelector("#page-body")]
          .filter(Boolean).map((node) => node.scrollWidth - node.clientWidth))"""
    )
    return found
