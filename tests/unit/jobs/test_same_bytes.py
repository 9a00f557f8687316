"""An item's bytes follow from its request: not from its place, its company or its process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.cli.main import main

NUM_ITEMS = 20
SEVENTEEN = 17


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (24, 36, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def batch(
    launch: Path, checkpoint: Path, folder: str, listed: Sequence[int], workers: int = 1
) -> dict[int, bytes]:
    """The pictures of a job over these items, in the order given."""
    spec = launch / f"{folder}.jsonl"
    requests = [
        {
            "video": "a.png",
            "prompt": ("snow", "night")[index % 2],
            "edge": {"control_weight": 1.0},
            "episode": index,
            "seed": 5,
            "name": f"item-{index:02d}",
            "num_steps": 1,
        }
        for index in listed
    ]
    spec.write_text("\n".join(map(json.dumps, requests)), encoding="utf-8")
    typed = [f"spec={spec}", f"output.dir={folder}", f"model.checkpoint={checkpoint}"]
    assert main(["batch", *typed, "model.device=cpu", "--workers", str(workers)]) == 0
    return {index: (launch / folder / f"item-{index:02d}.png").read_bytes() for index in listed}


def test_item_17_alone_is_item_17_of_the_batch(launch: Path, tiny_checkpoint: Path) -> None:
    whole = batch(launch, tiny_checkpoint, "whole", range(NUM_ITEMS))
    assert len(set(whole.values())) == NUM_ITEMS
    alone = batch(launch, tiny_checkpoint, "alone", [SEVENTEEN])
    assert alone[SEVENTEEN] == whole[SEVENTEEN]
    others = batch(launch, tiny_checkpoint, "others", [19, 3, SEVENTEEN, 0])
    assert others == {index: whole[index] for index in others}


def test_item_17_of_two_workers_is_item_17_alone(launch: Path, tiny_checkpoint: Path) -> None:
    alone = batch(launch, tiny_checkpoint, "alone", [SEVENTEEN])
    both = batch(launch, tiny_checkpoint, "both", [19, SEVENTEEN, 0], workers=2)
    assert both[SEVENTEEN] == alone[SEVENTEEN]
