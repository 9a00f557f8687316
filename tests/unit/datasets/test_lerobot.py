from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmos_transfer.datasets.base import Card, NewEpisode
from cosmos_transfer.datasets.lerobot import (
    LeRobotDataset,
    count_levels,
    pixel_statistics,
)
from cosmos_transfer.datasets.lerobot_v21 import LeRobotV21Dataset
from cosmos_transfer.datasets.source import open_source
from cosmos_transfer.errors import ConfigError, MediaError, ShapeError, TransferError
from cosmos_transfer.jobs.augment import augment_dataset
from tests.support.lerobot import CAMERAS, build_lerobot, build_lerobot_v21, episode_level
from tests.support.restyle import Inverter

pytest.importorskip("pyarrow", reason="the extra datasets is not installed")


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


def change_info(root: Path, **changes: Any) -> None:
    path = root / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_depth_is_no_camera_and_passes_through(tmp_path: Path) -> None:
    source = build_lerobot(tmp_path / "arm", num_episodes=2)
    features = LeRobotDataset(source).info["features"]
    features[CAMERAS[1]] = {**features[CAMERAS[1]], "info": {"is_depth_map": True}}
    change_info(source, features=features)
    old = LeRobotDataset(source)
    assert old.cameras == CAMERAS[:1]
    made = augment_dataset(source, tmp_path / "out", looks=["night"], restyle=Inverter())
    new = LeRobotDataset(made.root)
    assert new.info["features"][CAMERAS[1]] == features[CAMERAS[1]]
    for before, after in zip(old.episodes, new.episodes, strict=True):
        assert after.video(CAMERAS[1]) == before.video(CAMERAS[1])
        path = new.video_path(after, CAMERAS[1])
        assert path.read_bytes() == old.video_path(before, CAMERAS[1]).read_bytes()


def test_a_rate_that_is_no_whole_number_is_kept(tmp_path: Path) -> None:
    source = build_lerobot(tmp_path / "arm", num_episodes=1)
    change_info(source, fps=29.97)
    dataset = LeRobotDataset(source)
    assert dataset.clock(dataset.episodes[0], CAMERAS[0])[3] == Fraction(300, 2997)
    for wrong in (0, None, "fast"):
        change_info(source, fps=wrong)
        with pytest.raises(MediaError, match="expected fps, a number above 0"):
            LeRobotDataset(source)


def test_rows_and_pictures_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    source = build_lerobot(tmp_path / "arm", num_episodes=2)
    dataset = LeRobotDataset(source)
    first, second = dataset.episodes
    longer = replace(second, length=second.length + 1)
    with pytest.raises(ShapeError, match=r"episode 1: expected 6 frames .* got 5"):
        dataset.frames(longer, CAMERAS[0])
    shifted = NewEpisode(source=replace(second, start=first.start), videos={}, provenance={})
    with pytest.raises(ShapeError, match="episode 1: expected 5 rows of its own from row 0 on"):
        dataset.write(tmp_path / "out", [shifted], card=Card(text=""))
    assert not (tmp_path / "out").exists()


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
    (tmp_path / "meta/info.json").write_text('{"codebase_version": "v2.0", "features": {}}')
    with pytest.raises(ConfigError, match=r"v3\.0"):
        open_source(tmp_path)
    with pytest.raises(MediaError, match="nothing there"):
        LeRobotDataset(tmp_path / "nowhere")


def test_counted_statistics_are_those_of_all_pixels() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.integers(3, 250, (n, 5, 6, 3), dtype=np.uint8) for n in (2, 7)]
    names = ("min", "max", "mean", "std", "count", "q01", "q50", "q99", "other")
    found = pixel_statistics(sum(map(count_levels, parts)), 9, names)
    pixels = np.concatenate(parts).reshape(-1, 3) / 255
    expected = {
        "min": pixels.min(axis=0),
        "max": pixels.max(axis=0),
        "mean": pixels.mean(axis=0),
        "std": pixels.std(axis=0),
        "q01": np.quantile(pixels, 0.01, axis=0),
        "q50": np.quantile(pixels, 0.5, axis=0),
        "q99": np.quantile(pixels, 0.99, axis=0),
    }
    assert set(found) == {*expected, "count"}
    assert found["count"] == [9]
    for name, values in expected.items():
        assert np.shape(found[name]) == (3, 1, 1)
        np.testing.assert_allclose(np.ravel(found[name]), values, rtol=1e-9)


@pytest.fixture(scope="module")
def source_v21(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_lerobot_v21(tmp_path_factory.mktemp("lerobot") / "arm21")


def test_v21_comes_out_as_v30(source_v21: Path, tmp_path: Path) -> None:
    old = open_source(source_v21)
    assert isinstance(old, LeRobotV21Dataset)
    made = augment_dataset(
        source_v21, tmp_path / "out", looks=["night"], cameras=CAMERAS[:1], restyle=Inverter()
    )
    new = LeRobotDataset(made.root)
    assert new.info["codebase_version"] == "v3.0"
    assert "total_chunks" not in new.info
    assert "total_chunks" in json.loads((source_v21 / "meta/info.json").read_text())
    before, after = old.table(), new.table()
    for name in ("action", "timestamp", "frame_index", "task_index", "index", "episode_index"):
        assert after.column(name).equals(before.column(name)), name
    for place, episode in enumerate(new.episodes):
        expected = 255 - old.frames(old.episodes[place], CAMERAS[0]).astype(int)
        assert np.abs(new.frames(episode, CAMERAS[0]) - expected).mean() < 4
        kept = old.frames(old.episodes[place], CAMERAS[1])
        assert np.array_equal(new.frames(episode, CAMERAS[1]), kept)
    import pyarrow.parquet as pq

    tasks = pq.read_table(made.root / "meta/tasks.parquet")
    assert tasks.to_pydict() == {"task_index": [0, 1], "task": ["lift", "push"]}
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]
    stats = json.loads((made.root / "meta/stats.json").read_text())
    actions = np.array(before.column("action").to_pylist())
    np.testing.assert_allclose(stats["action"]["mean"], actions.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(stats["action"]["std"], actions.std(axis=0), rtol=1e-6)


def test_what_the_new_videos_are_stands_in_the_info(source: Path, tmp_path: Path) -> None:
    made = augment_dataset(source, tmp_path / "out", looks=["night"], restyle=Inverter())
    info = LeRobotDataset(made.root).info["features"][CAMERAS[0]]["info"]
    assert (info["video.codec"], info["video.pix_fmt"]) == ("h264", "yuv420p")
    row = LeRobotDataset(made.root).episodes[0].values
    pixels = LeRobotDataset(made.root).frames(LeRobotDataset(made.root).episodes[0], CAMERAS[0])
    expected = np.quantile(pixels.reshape(-1, 3) / 255, 0.5, axis=0)
    np.testing.assert_allclose(np.ravel(row[f"stats/{CAMERAS[0]}/q50"]), expected, rtol=1e-9)


def test_the_card_shows_sources_and_looks(source: Path, tmp_path: Path) -> None:
    made = augment_dataset(source, tmp_path / "out", looks=["night", "snow"], restyle=Inverter())
    assert "(sheet.png)" in (made.root / "README.md").read_text()
    assert (made.root / "sheet.png").stat().st_size > 1000
