from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmos_transfer.datasets.lerobot import (
    LeRobotDataset,
    pixel_statistics,
    pooled_statistics,
)
from cosmos_transfer.errors import ConfigError, MediaError, TransferError
from cosmos_transfer.inputs.video import uniform_times
from cosmos_transfer.jobs.augment import augment_dataset
from cosmos_transfer.outputs.record import GenerationRecord
from cosmos_transfer.pipeline import GeneratedClip
from cosmos_transfer.shapes import Size
from tests.support.lerobot import CAMERAS, FPS, build_lerobot, episode_level

pytest.importorskip("pyarrow", reason="the extra datasets is not installed")


class Inverter:
    """Stands for a model: the negative of the clip, shifted by the seed's parity."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []

    def __call__(
        self, *, prompt: str, video: np.ndarray, controls: Any, **settings: Any
    ) -> GeneratedClip:
        self.calls.append((settings["seed"], settings["episode"], settings["variant"]))
        frames = 255 - video
        if prompt == "drifted":
            frames = np.zeros_like(video)
        size = Size(*video.shape[1:3])
        times = uniform_times(len(video), settings["rate"])
        record = GenerationRecord(
            request={"output_codec": "h264"},
            checkpoint={},
            input_size=size,
            working_size=size,
            padded_size=size,
            num_frames=len(video),
            padded_frames=len(video),
            rate=settings["rate"],
            times=times,
        )
        return GeneratedClip(
            frames=frames, times=times, rate=Fraction(FPS), is_still=False, record=record
        )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_lerobot(tmp_path_factory.mktemp("lerobot") / "arm")


def test_every_episode_is_found_in_its_shared_file(source: Path) -> None:
    dataset = LeRobotDataset(source)
    assert dataset.cameras == CAMERAS
    for episode in dataset.episodes:
        for number, camera in enumerate(CAMERAS):
            frames = dataset.frames(episode, camera)
            assert len(frames) == episode.length
            level = episode_level(episode.index, number)
            assert np.abs(frames[:, :4].astype(int) - level).max() <= 4


def test_six_episodes_in_two_looks_are_twelve(source: Path, tmp_path: Path) -> None:
    made = augment_dataset(
        source, tmp_path / "out", looks=["night", "snow"], restyle=Inverter(), seed=5
    )
    assert (made.num_episodes, made.refused) == (12, ())
    old, new = LeRobotDataset(source), LeRobotDataset(made.root)
    before, after = old.table(), new.table()
    assert after.schema.equals(before.schema, check_metadata=True)
    for index, episode in enumerate(new.episodes):
        from_episode = old.episodes[index // 2]
        was = before.slice(from_episode.start, from_episode.length)
        now = after.slice(episode.start, episode.length)
        for name in ("action", "timestamp", "frame_index", "task_index"):
            a, b = (table.column(name).combine_chunks() for table in (was, now))
            assert a.equals(b), name
        assert set(now.column("episode_index").to_pylist()) == {index}
        assert episode.length == from_episode.length
        for number, camera in enumerate(CAMERAS):
            frames = new.frames(episode, camera)
            expected = 255 - old.frames(from_episode, camera).astype(int)
            assert np.abs(frames - expected).mean() < 4
            assert (
                np.abs(frames[:, :4].astype(int) - (255 - episode_level(index // 2, number))).max()
                <= 6
            )
    assert after.column("index").to_pylist() == list(range(after.num_rows))
    assert new.info["total_episodes"] == 12
    assert new.info["total_frames"] == after.num_rows
    provenance = json.loads((made.root / "meta/provenance.json").read_text())
    assert provenance["version"] == 1
    assert [each["episode_index"] for each in provenance["episodes"]] == list(range(12))
    assert provenance["episodes"][3] | {"transform_version": ""} == {
        "episode_index": 3,
        "synthetic": True,
        "source_episode_index": 1,
        "source_repo_id": "arm",
        "transform": "cosmos-transfer",
        "transform_version": "",
        "variant": 1,
        "prompt": "snow",
        "seed": 5,
    }
    stats = json.loads((made.root / "meta/stats.json").read_text())
    pixels = np.concatenate([new.frames(episode, CAMERAS[0]) for episode in new.episodes])
    np.testing.assert_allclose(
        np.ravel(stats[CAMERAS[0]]["mean"]), pixels.reshape(-1, 3).mean(axis=0) / 255, atol=1e-9
    )
    assert (made.root / "meta/tasks.parquet").read_bytes() == (
        source / "meta/tasks.parquet"
    ).read_bytes()
    assert "Accepted 12, refused 0" in (made.root / "README.md").read_text()


def test_a_camera_that_is_not_chosen_keeps_its_file(source: Path, tmp_path: Path) -> None:
    made = augment_dataset(
        source, tmp_path / "out", looks=["night"], cameras=CAMERAS[:1], restyle=Inverter()
    )
    new = LeRobotDataset(made.root)
    old = LeRobotDataset(source)
    for episode in new.episodes:
        path = new.video_path(episode, CAMERAS[1])
        assert path.read_bytes() == old.video_path(episode, CAMERAS[1]).read_bytes()
        was = old.frames(old.episodes[episode.index], CAMERAS[1])
        assert np.array_equal(new.frames(episode, CAMERAS[1]), was)


def test_clips_that_drifted_are_refused_and_listed(source: Path, tmp_path: Path) -> None:
    made = augment_dataset(
        source,
        tmp_path / "out",
        looks=["night", "drifted"],
        accept={"edge_f1": ">0.5"},
        attempts=2,
        restyle=Inverter(),
    )
    assert made.num_episodes == 6
    assert {row.payload["prompt"] for row in made.refused} == {"drifted"}
    card = (made.root / "README.md").read_text()
    assert "Accepted 6, refused 6" in card
    assert "edge_f1 > 0.5" in card


def test_a_finished_job_is_not_made_again(source: Path, tmp_path: Path) -> None:
    first, second = Inverter(), Inverter()
    augment_dataset(source, tmp_path / "out", looks=["night"], restyle=first)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    augment_dataset(source, tmp_path / "out", looks=["night"], restyle=second)
    assert len(first.calls) == 12
    assert second.calls == []


@pytest.mark.parametrize("key", ["flip_vertical", "max_frames", "length_policy", "crop"])
def test_what_moves_pixels_or_frames_is_refused(source: Path, tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"got {key}\. Pixels and frames must stay"):
        augment_dataset(
            source, tmp_path / "out", looks=["a"], settings={key: 1}, restyle=Inverter()
        )


def test_the_destination_is_new_and_elsewhere(source: Path, tmp_path: Path) -> None:
    for place in (tmp_path, source / "inner"):
        with pytest.raises(ConfigError, match="outside the source"):
            augment_dataset(source, place, looks=["a"], restyle=Inverter())


def test_rules_that_nothing_can_measure_are_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="depth_si_rmse"):
        augment_dataset(
            source,
            tmp_path / "out",
            looks=["a"],
            accept={"depth_si_rmse": "<0.4"},
            restyle=Inverter(),
        )


def test_all_refused_is_an_error_and_writes_nothing(source: Path, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="all 6 episodes were refused"):
        augment_dataset(
            source,
            tmp_path / "out",
            looks=["drifted"],
            accept=["edge_f1>0.5"],
            attempts=1,
            restyle=Inverter(),
        )
    assert not (tmp_path / "out").exists()


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text('{"codebase_version": "v2.1", "features": {}}')
    with pytest.raises(ConfigError, match=r"v3\.0"):
        LeRobotDataset(tmp_path)
    with pytest.raises(MediaError, match="nothing there"):
        LeRobotDataset(tmp_path / "nowhere")


def test_pooled_statistics_are_those_of_all_pixels() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 256, (n, 5, 6, 3), dtype=np.uint8) for n in (2, 7)]
    pooled = pooled_statistics([pixel_statistics(part) for part in parts])
    whole = pixel_statistics(np.concatenate(parts))
    for name, value in whole.items():
        np.testing.assert_allclose(pooled[name], value, rtol=1e-12)
