"""The studio's server: its endpoints, what it serves, what it refuses."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.studio import callbacks, ui
from apps.studio.callbacks import Studio

ENDPOINTS = {"/open_scene", "/load_clip", "/keep_mask", "/run", "/cancel"}


@pytest.fixture(scope="module")
def studio(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Studio:
    root = tmp_path_factory.mktemp("server") / "studio"
    return Studio(root=root, model={"name_or_path": str(tiny_checkpoint), "device": "cpu"})


@pytest.fixture(scope="module")
def client(studio: Studio) -> Iterator[Any]:
    from gradio_client import Client

    page, workers = ui.launch(studio, port=0, block=False)
    yield Client(page.local_url, verbose=False)
    page.close()
    workers.stop()


def status_of(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_endpoints_have_names(client: Any) -> None:
    assert set(client.view_api(return_format="dict")["named_endpoints"]) >= ENDPOINTS


def test_a_scene_is_opened_and_mistakes_are_sentences(client: Any) -> None:
    opened = client.predict("tabletop", api_name="/open_scene")
    assert opened[0] == ""
    refused = client.predict(None, api_name="/cancel")
    assert "expected a job that waits or runs" in str(refused)


def run_values(prompt: str) -> list[Any]:
    """What the page sends with Run: the frame, the sliders, the tabs, the look."""
    details = ["everywhere", [], 1.0, 1.0, "medium"]
    return [0, 0.5, 0.0, 0.0, 0.0, *details * 4, prompt, [], 3, 1, 1, 1.0, 5]


def test_a_program_runs_a_job_in_the_worker(client: Any, studio: Studio) -> None:
    client.predict("tabletop", api_name="/open_scene")
    said, _ = client.predict(*run_values("a robot arm"), api_name="/run")
    assert "Queued" in said
    deadline = time.monotonic() + 240
    while (job := callbacks.jobs(studio)[0]).state in ("waiting", "running"):
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    assert (job.state, job.error) == ("done", None)
    assert set(callbacks.result_files(studio, job.name)) == {"clip", "record", "spec", "input"}


def test_only_results_are_served(client: Any, studio: Studio) -> None:
    (studio.results / "clip.mp4").write_bytes(b"made")
    (studio.root / "secret.txt").write_text("secret")
    base = f"{client.src.rstrip('/')}/gradio_api/file="
    assert status_of(f"{base}{studio.results / 'clip.mp4'}") == 200
    for path in (
        studio.root / "job.sqlite",
        studio.root / "secret.txt",
        f"{studio.results}/../secret.txt",
        f"{studio.results}/%2e%2e/secret.txt",
        "/etc/passwd",
    ):
        assert status_of(f"{base}{path}") in (403, 404), path


def test_the_page_names_no_other_host(client: Any) -> None:
    with urllib.request.urlopen(client.src, timeout=60) as answer:
        page = answer.read().decode()
    assert "fonts.googleapis" not in page
    assert "fonts.gstatic" not in page
    assert '<script async src="https://' not in page
