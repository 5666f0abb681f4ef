"""Files on the chat page: chosen, dropped, pasted, sent, shown, downloaded; large and hostile."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.pages import exchanges, opened, say
from tests.browser.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

LARGE = 20_000_000
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
TRANSFER = """([name, type, content]) => {
  const bytes = Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0));
  const made = new DataTransfer();
  made.items.add(new File([bytes], name, { type }));
  return made;
}"""


@pytest.fixture(scope="module")
def server(chat_server: Server) -> Server:
    return chat_server


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, server: Server) -> AsyncIterator[Page]:
    async with opened(browser, server) as page:
        await expect(page.get_by_role("button", name="Attach files")).to_be_visible()
        yield page


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def attach(page: Page, *files: Path) -> None:
    await page.locator("#file-input").set_input_files(files)


async def downloaded(page: Page, name: str, nth: int = 0) -> bytes:
    async with page.expect_download() as download:
        await page.get_by_role("link", name=f"Download {name}").nth(nth).click()
    return (await (await download.value).path()).read_bytes()


async def test_a_file_of_20_mb_goes_to_the_agent_and_comes_back_whole(
    page: Page, tmp_path: Path
) -> None:
    content = random.Random(7).randbytes(LARGE)
    large = tmp_path / "large.bin"
    large.write_bytes(content)
    await attach(page, large)
    await expect(page.locator(".chip[data-state=ready]")).to_contain_text("20 MB")
    await say(page, "keep this", "filer")
    await exchanges(page, 1)
    await expect(page.locator(".bubble.theirs")).to_contain_text(f"of {LARGE} bytes")
    await page.reload()
    await exchanges(page, 1)
    for nth in (0, 1):
        assert digest(await downloaded(page, "large.bin", nth)) == digest(content)


async def test_a_pasted_picture_is_previewed_sent_and_opened(page: Page) -> None:
    data = [" ", "image/png", base64.b64encode(PIXEL).decode()]
    transfer = await page.evaluate_handle(TRANSFER, data)
    await page.evaluate(
        """(transfer) => document.querySelector("#text").dispatchEvent(new ClipboardEvent(
          "paste", { clipboardData: transfer, bubbles: true, cancelable: true }))""",
        transfer,
    )
    await expect(page.locator(".chip[data-state=ready] img")).to_be_visible()
    await page.get_by_label("Agent").select_option("filer")
    await page.get_by_role("button", name="Send", exact=True).click()
    await exchanges(page, 1)
    await page.reload()
    await exchanges(page, 1)
    tile = page.locator(".question .picture-tile button")
    await expect(tile.locator("img")).to_have_js_property("naturalWidth", 1)
    await tile.click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("img")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(tile).to_be_focused()


async def test_a_dropped_file_is_attached_and_can_be_removed(page: Page) -> None:
    data = ["notes.txt", "text/plain", base64.b64encode(b"hello").decode()]
    transfer = await page.evaluate_handle(TRANSFER, data)
    await page.dispatch_event("#talk", "dragover", {"dataTransfer": transfer})
    await expect(page.locator("#drop")).to_be_visible()
    await page.dispatch_event("#talk", "drop", {"dataTransfer": transfer})
    await expect(page.locator("#drop")).to_be_hidden()
    await expect(page.locator(".chip[data-state=ready]")).to_contain_text("notes.txt")
    await page.get_by_role("button", name="Remove notes.txt").click()
    await expect(page.locator(".chip")).to_have_count(0)


async def test_uploaded_files_stay_with_the_draft(page: Page, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("hello")
    await attach(page, notes)
    await expect(page.locator(".chip[data-state=ready]")).to_have_count(1)
    await page.get_by_label("Message").fill("with notes")
    await page.reload()
    await expect(page.locator(".chip[data-state=ready]")).to_contain_text("notes.txt")
    await say(page, "with notes", "filer")
    await expect(page.locator(".bubble.theirs")).to_contain_text("of 5 bytes")
    await expect(page.locator(".chip")).to_have_count(0)


async def test_a_file_that_is_too_large_is_refused_at_once(page: Page, tmp_path: Path) -> None:
    huge = tmp_path / "huge.bin"
    with huge.open("wb") as file:
        file.truncate(27_000_000)
    await attach(page, huge)
    chip = page.locator(".chip[data-state=failed]")
    await expect(chip).to_contain_text("larger than 26 MB")
    await expect(chip.get_by_role("alert")).to_have_count(1)


async def test_a_hostile_file_neither_runs_nor_breaks_the_page(page: Page, tmp_path: Path) -> None:
    name = "<img src=x onerror='window.owned=1'>\u202egnp.html"
    evil = tmp_path / name
    evil.write_text("<script>parent.owned = 2; opener.owned = 2</script>")
    await attach(page, evil)
    await expect(page.locator(".chip[data-state=ready]")).to_have_count(1)
    await say(page, "look", "filer")
    await exchanges(page, 1)
    await expect(page.locator(".file-card").first).to_contain_text("<img src=x")
    assert await page.evaluate("window.owned") is None
    await expect(page.locator("#column img, #files img")).to_have_count(0)
    link = page.locator(".question .file-card a[download]")
    address = await link.get_attribute("href")
    kind = await page.evaluate(
        """async (address) => { const { headers } = await fetch(`${address}?inline=true`);
          return [headers.get("content-type"), headers.get("content-disposition")]; }""",
        address,
    )
    assert "html" not in kind[0]
    assert kind[1].startswith("attachment")


async def test_a_stranger_gets_no_file_of_another_conversation(
    page: Page, browser: Browser, server: Server, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("between us")
    await attach(page, secret)
    await expect(page.locator(".chip[data-state=ready]")).to_have_count(1)
    await say(page, "keep it secret", "filer")
    await exchanges(page, 1)
    address = await page.locator(".question a[download]").get_attribute("href")
    token = await page.evaluate(
        """() => fetch("/api/tokens", { method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ name: "stranger", role: "send" }) }).then((one) => one.json())"""
    )
    context = await browser.new_context()
    answer = await context.request.get(
        f"{server.address}{address}", headers={"authorization": f"Bearer {token['token']}"}
    )
    assert answer.status == 404
    await context.close()
