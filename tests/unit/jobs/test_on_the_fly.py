from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from cosmos_transfer import AugmentedEpisodes
from cosmos_transfer.errors import ConfigError, ShapeError
from tests.support.restyle import Inverter


def samples(kind: str = "array") -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    listed = []
    for index in range(3):
        clip: Any = rng.integers(0, 256, (2, 8, 10, 3), dtype=np.uint8)
        if kind == "planar tensor":
            clip = torch.from_numpy(clip).permute(0, 3, 1, 2).contiguous()
        listed.append({"clip": clip, "action": np.full(4, index)})
    return listed


@pytest.mark.parametrize("kind", ["array", "planar tensor"])
def test_samples_are_followed_by_their_looks(tmp_path: Path, kind: str) -> None:
    base = samples(kind)
    model = Inverter()
    data = AugmentedEpisodes(
        base, keys=["clip"], looks=["night", "a red wall"], cache=tmp_path, restyle=model
    )
    assert len(data) == 9
    assert len(list(data)) == 9
    for place, sample in enumerate(base):
        source, *looks = (data[3 * place + number] for number in range(3))
        assert source["clip"] is sample["clip"]
        for each in looks:
            assert type(each["clip"]) is type(sample["clip"])
            assert each["clip"].dtype == sample["clip"].dtype
            assert (each["clip"] == 255 - sample["clip"]).all()
            assert each["action"] is sample["action"]
    assert sorted(model.calls) == [(0, place, look) for place in range(3) for look in range(2)]


def test_a_clip_is_made_once_and_then_read(tmp_path: Path) -> None:
    first, second = Inverter(), Inverter()
    for model in (first, second):
        data = AugmentedEpisodes(
            samples(),
            keys=["clip"],
            looks=["night"],
            cache=tmp_path,
            keep_source=False,
            restyle=model,
        )
        assert [int(each["action"][0]) for each in data] == [0, 1, 2]
    assert (len(first.calls), len(second.calls)) == (3, 0)
    other = AugmentedEpisodes(
        samples(), keys=["clip"], looks=["night"], cache=tmp_path, seed=1, restyle=second
    )
    other[1]
    assert second.calls == [(1, 0, 0)]
    assert not list(tmp_path.rglob(".*.npz"))


def test_it_goes_through_a_loader(tmp_path: Path) -> None:
    data = AugmentedEpisodes(
        samples("planar tensor"), keys=["clip"], looks=["fog"], cache=tmp_path, restyle=Inverter()
    )
    batch = next(iter(DataLoader(data, batch_size=6)))
    assert batch["clip"].shape == (6, 2, 3, 8, 10)


def test_floats_and_moves_are_refused(tmp_path: Path) -> None:
    floats = [{"clip": np.zeros((2, 8, 10, 3), np.float32)}]
    data = AugmentedEpisodes(
        floats, keys=["clip"], looks=["fog"], cache=tmp_path, restyle=Inverter()
    )
    with pytest.raises(ShapeError, match="float32"):
        data[1]
    with pytest.raises(ConfigError, match="max_frames"):
        AugmentedEpisodes(
            samples(), keys=["clip"], looks=["fog"], cache=tmp_path, settings={"max_frames": 2}
        )
    with pytest.raises(ConfigError, match="one look or more"):
        AugmentedEpisodes(samples(), keys=["clip"], looks=[], cache=tmp_path)
