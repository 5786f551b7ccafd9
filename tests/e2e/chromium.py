"""A page of a real browser, headless."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PageTimeout

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
# a point of the graph's canvas that belongs to no table and to no group
EMPTY_SPOT = """() => {
  const canvas = document.querySelector("[data-svg-viewport]").getBoundingClientRect()
  for (let y = canvas.top + 10; y < Math.min(canvas.bottom, window.innerHeight); y += 20)
    for (let x = canvas.left + 10; x < canvas.right; x += 20) {
      const there = document.elementFromPoint(x, y)
      if (there && (there.tagName === "svg" || there.hasAttribute("data-svg-viewport"))) return {x, y}
    }
  return null
}"""
# the zoom that Dagster notes is the one of the look before
CAME_TO_REST = """() => {
  const before = window.zoomOfLastLook
  window.zoomOfLastLook = localStorage.getItem("lineageGraphZoomLevel")
  return before === window.zoomOfLastLook
}"""
PATIENCE_MS = 1000 * PATIENCE_S
# how long a page is looked at before it is opened again
LOOK_MS = 10_000


@contextmanager
def opened_page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium
        browser = chromium.launch(executable_path=require("chromium"), args=ARGUMENTS, timeout=PATIENCE_MS)
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(PATIENCE_MS)
            expect.set_options(timeout=PATIENCE_MS)
            yield page
        finally:
            browser.close()


def shows(page: Page, address: str, text: str) -> bool:
    """Opens the address and looks for the text, to be tried again.

    Not until the network is idle, because a page that goes on asking for something never is.
    """
    page.goto(address)
    try:
        page.get_by_text(text).first.wait_for(timeout=LOOK_MS)
    except PageTimeout:
        return False
    return True


def show_whole_graph(page: Page) -> None:
    """Double-clicks the empty background of a lineage graph, which fits the graph into the window.

    Dagster opens a graph at the zoom of the graph that was looked at before, and the page of an asset first draws its
    neighbours: of a larger graph only the middle is then drawn, and what is outside of the window is not on the page.
    """
    page.locator("[data-svg-viewport] svg foreignObject").first.wait_for()
    spot = page.evaluate(EMPTY_SPOT)
    assert spot is not None, "the graph leaves no empty spot"
    page.mouse.dblclick(spot["x"], spot["y"])
    page.wait_for_function(CAME_TO_REST, polling=200)


def picture(page: Page, folder: Path, name: str) -> None:
    """Kept where PLATFORM_TEST_PICTURES says, for somebody to look at."""
    page.screenshot(path=Path(os.environ.get("PLATFORM_TEST_PICTURES", folder)) / f"{name}.png")
