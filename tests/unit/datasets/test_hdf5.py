from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmos_transfer.datasets.hdf5 import HDF5Dataset
from cosmos_transfer.datasets.source import open_source
from cosmos_transfer.errors import MediaError, ShapeError
from cosmos_transfer.jobs.augment import augment_dataset
from tests.support.restyle import Inverter
from tests.support.robomimic import CAMERAS, build_robomimic, pictures

h5py = pytest.importorskip("h5py", reason="the extra hdf5 is not installed")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return build_robomimic(tmp_path / "can.hdf5")


def everything(group: Any) -> dict[str, tuple]:
    """Every key and attribute under a group, comparable."""
    found: dict[str, tuple] = {"": tuple(sorted((k, str(v)) for k, v in group.attrs.items()))}

    def visit(name: str, held: Any) -> None:
        attributes = tuple(sorted((key, str(value)) for key, value in held.attrs.items()))
        if isinstance(held, h5py.Dataset):
            told = (held.dtype, held.shape, held.chunks, held.compression, held[...].tobytes())
            found[name] = (*told, attributes)
        else:
            found[name] = attributes

    group.visititems(visit)
    return found


def test_demos_stand_in_the_order_of_their_numbers(source: Path) -> None:
    dataset = HDF5Dataset(source)
    assert [each.name for each in dataset.episodes] == ["demo_0", "demo_2", "demo_10"]
    assert [each.index for each in dataset.episodes] == [0, 2, 10]
    assert dataset.cameras == CAMERAS
    assert dataset.rate == 10
    frames = dataset.frames(dataset.episodes[2], "agentview_image")
    assert np.array_equal(frames, pictures("demo_10", 5))  # the last one is of next_obs


def test_every_key_and_attribute_is_copied_and_pictures_change(
    source: Path, tmp_path: Path
) -> None:
    made = augment_dataset(
        source, tmp_path / "out.hdf5", looks=["night", "snow"], restyle=Inverter()
    )
    assert made.num_episodes == 6
    changed = {f"obs/{camera}" for camera in CAMERAS} | {"next_obs/agentview_image"}
    with h5py.File(source) as old, h5py.File(made.root) as new:
        assert dict(new.attrs) == dict(old.attrs)
        assert set(new) == {"data", "mask", "extra"}
        assert np.array_equal(new["extra/notes"][...], old["extra/notes"][...])
        assert new["data"].attrs["total"] == 2 * old["data"].attrs["total"]
        assert new["data"].attrs["env_args"] == old["data"].attrs["env_args"]
        for place, name in enumerate(["demo_0", "demo_2", "demo_10"]):
            for look in (0, 1):
                was, now = (
                    everything(old["data"][name]),
                    everything(new["data"][f"demo_{2 * place + look}"]),
                )
                assert set(was) == set(now)
                for key, value in was.items():
                    if key not in changed:
                        assert now[key] == value, key
                        continue
                    assert now[key][:4] + now[key][5:] == value[:4] + value[5:], key
                    a, b = (np.frombuffer(each[4], np.uint8) for each in (value, now[key]))
                    assert np.array_equal(b, 255 - a), key  # lossless on the way
        assert list(new["mask/train"][...]) == [b"demo_0", b"demo_1", b"demo_4", b"demo_5"]
        assert [each.decode() for each in new["mask/valid"][...]] == ["demo_2", "demo_3"]
    provenance = json.loads((tmp_path / "out.provenance.json").read_text())["episodes"]
    assert [each["source_episode_index"] for each in provenance] == [0, 0, 2, 2, 10, 10]
    assert "(out.sheet.png)" in (tmp_path / "out.md").read_text()


def test_upside_down_pictures_are_turned_for_the_model_and_kept_as_they_were(
    tmp_path: Path,
) -> None:
    source = build_robomimic(tmp_path / "old.hdf5", upside_down=True)
    dataset = HDF5Dataset(source, flip_vertical=True)
    upright = pictures("demo_0", 7)
    assert np.array_equal(dataset.frames(dataset.episodes[0], "agentview_image"), upright)
    augment_dataset(
        source, tmp_path / "out.hdf5", looks=["night"], flip_vertical=True, restyle=Inverter()
    )
    with h5py.File(tmp_path / "out.hdf5") as new:
        stored = new["data/demo_0/obs/agentview_image"][...]
    assert np.array_equal(stored, 255 - upright[:6, ::-1])


def test_pictures_and_actions_of_different_number_are_refused(source: Path) -> None:
    with h5py.File(source, "a") as file:
        del file["data/demo_2/actions"]
        file["data/demo_2/actions"] = np.zeros((6, 7))
    with pytest.raises(ShapeError, match=r"demo_2/obs/agentview_image: expected 6 .* got 5"):
        HDF5Dataset(source)


def test_next_obs_that_is_not_the_next_picture_is_refused(source: Path, tmp_path: Path) -> None:
    with h5py.File(source, "a") as file:
        file["data/demo_2/next_obs/agentview_image"][1] = 7
    dataset = HDF5Dataset(source)
    with pytest.raises(ShapeError, match="demo_2/next_obs/agentview_image"):
        dataset.frames(dataset.episodes[1], "agentview_image")


def test_what_holds_no_demonstrations_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["data"] = np.zeros(3)
    with pytest.raises(MediaError, match="data/demo_N"):
        open_source(tmp_path / "other.hdf5")
    (tmp_path / "text.hdf5").write_text("no")
    with pytest.raises(MediaError, match="another file"):
        open_source(tmp_path / "text.hdf5")
