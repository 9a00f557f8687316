"""Drive the studio in a browser and keep what it looks like; `make docs-app` runs it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support import studio_page as steps

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
PROMPT = "a robot arm on a marble table, brick wall, at dusk"


def make() -> None:
    """Take the pictures: a scene, a mask, a result; then the same page on a telephone."""
    if steps.CHROMIUM is None:
        sys.exit("make_app_pictures: expected chromium on the path, got none. Install it.")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, steps.served(Path(folder) / "app") as address:
        with steps.browser_page(address) as page:
            steps.open_scene(page)
            page.screenshot(path=FOLDER / "app_scene.png")
            steps.paint(page)
            page.screenshot(path=FOLDER / "app_mask.png")
            steps.unfold(page, "Paint a mask")
            name = steps.run(page, PROMPT)
            steps.wait_done(page, name)
            page.wait_for_selector("#result .wipe video")
            page.wait_for_timeout(1500)
            page.screenshot(path=FOLDER / "app_result.png", full_page=True)
        with steps.browser_page(address, width=390, height=844) as page:
            steps.open_scene(page)
            page.wait_for_selector("#result .wipe video")
            page.screenshot(path=FOLDER / "app_narrow.png", full_page=True)


if __name__ == "__main__":
    make()
