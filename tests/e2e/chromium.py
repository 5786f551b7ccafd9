"""A page of a real browser, headless."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.needs import require
from tests.waiting import PATIENCE_S

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 1000 * PATIENCE_S


@contextmanager
def opened_page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        yield page
        browser.close()


def picture(page: Page, folder: Path, name: str) -> None:
    """Kept where PLATFORM_TEST_PICTURES says, for somebody to look at."""
    page.screenshot(path=Path(os.environ.get("PLATFORM_TEST_PICTURES", folder)) / f"{name}.png")
