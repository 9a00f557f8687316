"""The studio in a browser: serving it, and the steps that a person takes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 300_000  # a busy machine is slow; nothing here waits longer than it takes


@contextmanager
def served(root: Path, *arguments: str) -> Iterator[str]:
    """Run ``cosmos-transfer app`` on a free port; gives its address."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "cosmos_transfer", "app", "--output", str(root)]
    with (root.parent / "app.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port), *arguments], stdout=log, stderr=log, env=os.environ
        )
        try:
            _wait_for(address, process)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"{address} does not answer, exit code {process.poll()}")


@contextmanager
def browser_page(address: str, *, width: int = 1280, height: int = 800) -> Iterator[Any]:
    """A page of a browser at that address; its ``outside`` lists requests that left the machine."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=list(ARGUMENTS)
        )
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(PATIENCE_MS)
        page.outside = []
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((address, "data:", "blob:"))
                else page.outside.append(request.url)
            ),
        )
        page.goto(address)
        page.wait_for_selector("#open-scene")
        yield page
        browser.close()


def open_scene(page: Any) -> None:
    """Open the scene that is chosen, and wait until it is seen."""
    page.click("#open-scene")
    page.wait_for_selector("#view .stage img")


def upload(page: Any, path: Path) -> None:
    """Upload a clip."""
    page.set_input_files("#upload input[type=file]", str(path))


def set_number(page: Any, label: str, value: str) -> None:
    """Fill a number."""
    page.get_by_label(label, exact=True).fill(value)
    page.get_by_label(label, exact=True).blur()


def unfold(page: Any, title: str) -> None:
    """Open a part that is folded."""
    page.get_by_role("button", name=title).click()


def paint(page: Any) -> None:
    """Draw a stroke on the frame and keep it as the mask of the edges."""
    unfold(page, "Paint a mask")
    canvas = page.locator("#editor canvas").first
    canvas.wait_for(state="visible")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.5
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 9):
        page.mouse.move(x + step * box["width"] * 0.025, y)
    page.mouse.up()
    page.click("#keep-mask")
    page.wait_for_selector("#notice :text('was followed through all frames')")


def run(page: Any, prompt: str) -> str:
    """Run with a prompt; returns the name of the job."""
    page.fill("#prompt textarea", prompt)
    before = page.locator("#job input").input_value()
    page.click("#run")
    page.wait_for_function(
        "before => { const e = document.querySelector('#job input');"
        " return e.value && e.value !== before }",
        arg=before,
    )
    return str(page.locator("#job input").input_value())


def wait_done(page: Any, name: str, state: str = "done") -> None:
    """Wait until the job of that name is in that state."""
    page.wait_for_selector(f"#jobs li:has(small:text-is('{name}')) .pill.{state}")
