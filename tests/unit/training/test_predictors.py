from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cosmos_transfer.errors import ConfigError
from cosmos_transfer.metrics.predictors import FrameNetwork, load_predictor
from cosmos_transfer.training import predictors as module
from cosmos_transfer.training.data import (
    FIRST_TRAINING_SEED,
    HELD_OUT_SEEDS,
    render_shard,
    write_shard,
)
from cosmos_transfer.training.predictors import (
    FramePool,
    PredictorTrainer,
    PredictorTraining,
    class_weights,
    depth_loss,
    disturb,
    measure_floor,
    predictor_config,
    ship,
)
from cosmos_transfer.training.scenes import CLASS_NAMES


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> FramePool:
    """Four scenes of 32x48 with two looks, and two simulator's views."""
    folder = tmp_path_factory.mktemp("data")
    seeds = range(FIRST_TRAINING_SEED, FIRST_TRAINING_SEED + 4)
    shard = render_shard(seeds, height=32, width=48, num_frames=5, num_looks=2)
    write_shard(folder / "shard-0001000.npz", shard)
    return FramePool(folder, num_simulator_scenes=2)


def trainer(pool: FramePool, folder: Path, task: str = "seg", seconds: float = 0.0):
    run = PredictorTraining(run_dir=folder, duration_s=seconds, batch_size=4)
    return PredictorTrainer(predictor_config(task), pool, run)


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shards to train on"):
        FramePool(tmp_path)


def test_a_frame_and_its_truth_stay_together(
    pool: FramePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undisturbed, every drawn frame is one of the pool's or its mirror image, truth included."""
    monkeypatch.setattr(module, "SHARE_SIMULATOR", 0.0)
    for share in ("SHARE_RECOLOURED", "SHARE_BLURRED", "SHARE_NOISY", "SHARE_SHRUNK"):
        monkeypatch.setattr(module, share, 0.0)
    batch = pool.draw(24, np.random.default_rng(0))
    pictures = ((batch.pictures + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy()
    num_mirrored = 0
    for picture, depth, ids in zip(pictures, batch.log_depth, batch.class_ids, strict=True):
        steps = [
            (index, step)
            for step in (1, -1)
            for index in range(len(pool))
            if any(np.array_equal(look, picture[:, ::step]) for look in pool.looks[index])
        ]
        ((index, step),) = steps
        num_mirrored += step == -1
        assert np.array_equal(pool.class_ids[index][:, ::step], ids.numpy())
        expected = np.log(pool.depth[index].astype(np.float32))[:, ::step]
        np.testing.assert_allclose(depth.numpy(), expected, rtol=1e-5)
    assert 4 <= num_mirrored <= 20


def test_some_batches_are_shrunk_with_their_truth(
    pool: FramePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARE_SHRUNK", 1.0)
    sizes = set()
    for seed in range(12):
        batch = pool.draw(3, np.random.default_rng(seed))
        height, width = batch.pictures.shape[-2:]
        assert batch.log_depth.shape == batch.class_ids.shape == (3, height, width)
        assert height % 8 == width % 8 == 0
        assert set(batch.class_ids.unique().tolist()) <= set(np.unique(pool.class_ids).tolist())
        sizes.add((height, width))
    assert len(sizes) > 1
    assert max(sizes) <= (32, 48)


def test_a_run_can_begin_with_other_weights(pool: FramePool, tmp_path: Path) -> None:
    first, second = (trainer(pool, tmp_path / name) for name in ("a", "b"))
    first.step()
    second.start_from(first.network)
    for key, value in first.network.state_dict().items():
        assert torch.equal(second.network.state_dict()[key], value)
        assert torch.equal(second.average.weights[key], value)


def test_simulator_views_are_drawn_now_and_then(pool: FramePool) -> None:
    assert len(pool._simulator) == 2
    assert {clip.seed for clip in pool._simulator} == {FIRST_TRAINING_SEED, FIRST_TRAINING_SEED + 1}
    assert not set(HELD_OUT_SEEDS) & {clip.seed for clip in pool._simulator}


def test_disturbing_is_repeatable_mild_and_in_range() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    flat = np.full((16, 24, 3), 128, dtype=np.uint8)
    brightness = []
    for seed in range(40):
        a, b = (disturb(picture, np.random.default_rng(seed)) for _ in range(2))
        assert np.array_equal(a, b)
        assert a.min() >= 0
        assert a.max() <= 1
        brightness.append(disturb(flat, np.random.default_rng(seed)).mean())
    assert np.std(brightness) > 0.02
    assert max(abs(value - 0.5) for value in brightness) < 0.35


def test_depth_loss_vanishes_for_the_truth_and_hardly_minds_its_scale() -> None:
    torch.manual_seed(0)
    truth = torch.rand(2, 8, 12) * 2
    truth[:, :2] = torch.inf  # sky
    found = torch.where(torch.isfinite(truth), truth, -3.0)
    assert depth_loss(found, truth) < 1e-6
    scaled = depth_loss(found + 0.7, truth)
    assert scaled == pytest.approx(0.1 * 0.7, abs=1e-5)
    assert depth_loss(found + 0.7 * torch.rand(2, 8, 12), truth) > 2 * scaled


def test_depth_loss_has_finite_gradients_beside_the_sky() -> None:
    truth = torch.rand(1, 8, 12)
    truth[:, :4] = torch.inf
    found = torch.zeros(1, 8, 12, requires_grad=True)
    depth_loss(found, truth).backward()
    assert found.grad is not None
    assert torch.isfinite(found.grad).all()
    assert (found.grad[:, 5:] != 0).any()


def test_rare_classes_weigh_more_up_to_a_limit() -> None:
    weights = class_weights(np.array([0.6, 0.3, 0.099, 0.001, 0.0]))
    assert (weights.diff() >= 0).all()
    assert weights[3] > 1.5 * weights[2]
    assert weights.max() <= 3.0


@pytest.mark.parametrize("task", ["depth", "seg"])
def test_training_learns(pool: FramePool, tmp_path: Path, task: str) -> None:
    run = trainer(pool, tmp_path, task)
    run.optimizer.set_rate(0.5)
    losses = [run.step() for _ in range(30)]
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:3])


def test_a_resumed_run_continues_the_sequence(pool: FramePool, tmp_path: Path) -> None:
    whole = trainer(pool, tmp_path / "whole")
    whole.optimizer.set_rate(0.5)
    for _ in range(4):
        whole.step()
    first = trainer(pool, tmp_path / "cut")
    first.optimizer.set_rate(0.5)
    first.step()
    first.step()
    first.save()
    second = trainer(pool, tmp_path / "cut")
    assert second.resume()
    second.optimizer.set_rate(0.5)
    second.step()
    second.step()
    for key, value in whole.network.state_dict().items():
        torch.testing.assert_close(second.network.state_dict()[key], value)
        torch.testing.assert_close(second.average.weights[key], whole.average.weights[key])
    assert second.num_steps == 4


def test_a_run_stops_at_its_time_and_saves(pool: FramePool, tmp_path: Path) -> None:
    run = trainer(pool, tmp_path, seconds=0.3)
    run.run()
    assert run.elapsed_s >= 0.3
    assert run.state_path.exists()
    again = trainer(pool, tmp_path, seconds=0.3)
    assert again.resume()
    again.run()
    assert again.num_steps == run.num_steps


def test_what_is_shipped_knows_its_floor(pool: FramePool, tmp_path: Path) -> None:
    run = trainer(pool, tmp_path / "run")
    run.step()
    floor = ship(run, tmp_path / "checkpoint", seeds=(0, 1))
    network, recorded = load_predictor(tmp_path / "checkpoint/predictors/seg", task="seg")
    assert recorded == floor
    assert (floor.metric, floor.num_clips) == ("mask_miou", 2)
    assert sum(each["num_clips"] for each in floor.families.values()) == 2
    total = sum(each["mean"] * each["num_clips"] for each in floor.families.values())
    assert floor.mean == pytest.approx(total / 2, abs=2e-4)
    assert 0.0 < floor.mean < 0.5
    # Measured with the weights as written: fp16.
    assert measure_floor(network, (0, 1), size=pool.size, num_frames=5) == floor
    assert floor.measured_on.endswith("48x32, 5 frames")
    for key, value in run.average.weights.items():
        assert torch.equal(network.state_dict()[key], value.half().float())


def test_classes_keep_the_ids_of_the_scenes() -> None:
    config = predictor_config("seg")
    assert dict(enumerate(config.classes)) == CLASS_NAMES
    assert FrameNetwork(config).head.out_channels == len(CLASS_NAMES)
    assert predictor_config("depth").classes == ()
