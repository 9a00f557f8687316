"""Trains the two predictors that judge outputs (``metrics.predictors``), and measures their floor.

    python -m cosmos_transfer.training.predictors --data runs/data --run runs/predictors \\
        --duration 720 --checkpoint cosmos_transfer/checkpoints/embedded

They learn from the looks of training shards, seeds from 1,000 on, under every material, weather and
time of day; now and then from a simulator's view. Frames are mirrored, slightly blurred, made
noisy and shifted in colour, so that a generated picture is not judged by how sharp it is; some
batches are shrunk, so that other sizes can be judged. The floor is measured on held-out scenes with
the weights as they are shipped, in fp16, at the size of the shards.

A run's length is in processor seconds, so that a busy machine does not shorten the training.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Float16, Float32, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.inputs.video import resize_frames
from cosmos_transfer.metrics.control import depth_si_rmse, mask_miou
from cosmos_transfer.metrics.predictors import (
    SPATIAL_MULTIPLE,
    TASKS,
    DepthPredictor,
    Floor,
    FrameNetwork,
    PredictorConfig,
    SegmentationPredictor,
    load_predictor,
    save_predictor,
)
from cosmos_transfer.model.checkpoint_parts import PREDICTORS
from cosmos_transfer.shapes import Size
from cosmos_transfer.training.data import (
    FIRST_TRAINING_SEED,
    HELD_OUT_SEEDS,
    read_shard,
    shard_paths,
)
from cosmos_transfer.training.ema import MovingAverage
from cosmos_transfer.training.optimizer import MuonAdam
from cosmos_transfer.training.scenes import CLASS_NAMES, render_clip

log = logging.getLogger(__name__)

FRAMES_PER_CLIP = 3  # first, middle, last: neighbours show nearly the same
SHARE_SIMULATOR = 0.06
NUM_SIMULATOR_SCENES = 150
SHARE_RECOLOURED = 0.6
SHARE_BLURRED = 0.5
SHARE_NOISY = 0.5
LARGEST_BLUR = 1.0  # pixels
SHARE_SHRUNK = 0.4
SMALLEST_SCALE = 0.6
LARGEST_NOISE = 0.035  # of the full range
RARE_CLASS_POWER = 0.25
LARGEST_RATE_FACTOR = 1.0
WARMUP_STEPS = 40
COOL_DOWN = 0.5
SAVE_EVERY_S = 120.0
DEPTH_SOFT_LIMIT_M = 10.0  # about where the metric clips residuals


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBatch:
    """Pictures in [-1, 1] and what is seen in them."""

    pictures: Float[Tensor, "b 3 h w"]
    log_depth: Float[Tensor, "b h w"]  # of metres; infinite where there is no surface
    class_ids: Int[Tensor, "b h w"]


class FramePool:
    """Single frames of every shard in a folder, and some simulator's views."""

    def __init__(self, folder: Path, *, num_simulator_scenes: int = NUM_SIMULATOR_SCENES) -> None:
        paths = shard_paths(folder)
        if not paths:
            raise ConfigError(
                explain(
                    f"{folder}",
                    expected="shards to train on",
                    got="none",
                    do="Render some with `cosmos-transfer train data`.",
                )
            )
        self.num_frames, height, width = read_shard(paths[0]).depth.shape[1:]  # three are kept
        self.size = Size(height, width)
        looks, depths, ids = [], [], []
        for path in paths:
            shard = read_shard(path)
            kept = np.linspace(0, self.num_frames - 1, FRAMES_PER_CLIP).round().astype(int)
            looks.append(rearrange(shard.looks[:, :, kept], "s l f h w c -> (s f) l h w c"))
            depths.append(rearrange(shard.depth[:, kept], "s f h w -> (s f) h w"))
            ids.append(rearrange(shard.class_ids[:, kept], "s f h w -> (s f) h w"))
        self.looks: UInt8[np.ndarray, "n l h w 3"] = np.concatenate(looks)
        self.depth: Float16[np.ndarray, "n h w"] = np.concatenate(depths)
        self.class_ids: UInt8[np.ndarray, "n h w"] = np.concatenate(ids)
        self._simulator = [
            render_clip(
                FIRST_TRAINING_SEED + scene,
                height=height,
                width=width,
                num_frames=FRAMES_PER_CLIP,
                looks=(),
            )
            for scene in range(num_simulator_scenes)
        ]

    def __len__(self) -> int:
        return len(self.looks)

    def class_shares(self) -> Float[np.ndarray, " c"]:
        """The share of all pixels that each class has."""
        counts = np.bincount(self.class_ids.reshape(-1), minlength=len(CLASS_NAMES))
        return counts / counts.sum()

    def draw(self, batch_size: int, rng: np.random.Generator) -> FrameBatch:
        """Draw frames at random and disturb them; ``rng`` decides everything."""
        pictures, depths, ids = [], [], []
        size = self._draw_size(rng)
        for _ in range(batch_size):
            if self._simulator and rng.random() < SHARE_SIMULATOR:
                scene = self._simulator[int(rng.integers(len(self._simulator)))]
                frame = int(rng.integers(FRAMES_PER_CLIP))
                picture, labels = scene.simulator[frame], scene.class_ids[frame]
                depth = scene.depth[frame].astype(np.float32)
            else:
                index = int(rng.integers(len(self.looks)))
                picture = self.looks[index, int(rng.integers(self.looks.shape[1]))]
                labels = self.class_ids[index].astype(np.int32)
                depth = self.depth[index].astype(np.float32)
            step = -1 if rng.random() < 0.5 else 1
            picture = resize_frames(picture[None, :, ::step], size, how="area")[0]
            pictures.append(disturb(picture, rng))
            depths.append(resize_frames(depth[None, :, ::step], size, how="nearest")[0])
            labels = resize_frames(labels[None, :, ::step], size, how="nearest")[0]
            ids.append(labels.astype(np.int64))
        stacked = torch.from_numpy(np.stack(pictures))
        return FrameBatch(
            pictures=rearrange(stacked, "b h w c -> b c h w") * 2.0 - 1.0,
            log_depth=torch.from_numpy(np.stack(depths)).log(),
            class_ids=torch.from_numpy(np.stack(ids)),
        )

    def _draw_size(self, rng: np.random.Generator) -> Size:
        """One size for a batch: the shards' own, or a smaller one that halves three times."""
        if rng.random() >= SHARE_SHRUNK:
            return self.size
        scale = rng.uniform(SMALLEST_SCALE, 1.0)
        height, width = (
            max(1, round(side * scale / SPATIAL_MULTIPLE)) * SPATIAL_MULTIPLE
            for side in (self.size.height, self.size.width)
        )
        return Size(height, width)


def disturb(
    picture: UInt8[np.ndarray, "h w 3"], rng: np.random.Generator
) -> Float32[np.ndarray, "h w 3"]:
    """The picture in [0, 1] with other colours, a little blur and noise, each some of the time."""
    values = picture.astype(np.float32) / 255.0
    if rng.random() < SHARE_RECOLOURED:
        gray = values.mean(axis=-1, keepdims=True)
        values = gray + (values - gray) * np.float32(rng.uniform(0.6, 1.3))
        gain = rng.uniform(0.75, 1.25) * rng.uniform(0.93, 1.07, size=3)
        values = values * gain.astype(np.float32) + np.float32(rng.uniform(-0.06, 0.06))
        values = np.clip(values, 0.0, 1.0) ** np.float32(rng.uniform(0.8, 1.25))
    if rng.random() < SHARE_BLURRED:
        blurred = cv2.GaussianBlur(values, (0, 0), float(rng.uniform(0.3, LARGEST_BLUR)))
        values = blurred.astype(np.float32)
    if rng.random() < SHARE_NOISY:
        level = np.float32(rng.uniform(0.0, LARGEST_NOISE))
        values = values + level * rng.standard_normal(values.shape, dtype=np.float32)
    return np.clip(values, 0.0, 1.0)


def depth_loss(
    found: Float[Tensor, "b h w"], log_depth: Float[Tensor, "b h w"]
) -> Float[Tensor, ""]:
    """Error of log depth after the scale was fitted, of metres up to a limit, and of slopes.

    The fit is the metric's: the median ratio over each frame. A little of the scale itself is
    asked for, so that the outputs stay near metres.
    """
    is_surface = torch.isfinite(log_depth)
    difference = torch.where(is_surface, found - log_depth, torch.nan)
    scale = difference.flatten(1).nanmedian(dim=1).values[:, None, None]
    residual = (found - torch.where(is_surface, log_depth, 0.0) - scale).abs()
    error = residual[is_surface].mean()
    metres = (residual * torch.where(is_surface, log_depth, 0.0).exp())[is_surface]
    error = error + 0.1 * (metres / (1.0 + metres / DEPTH_SOFT_LIMIT_M)).mean()
    for axis in (-2, -1):
        slope = found.diff(dim=axis) - log_depth.diff(dim=axis)
        is_slope = torch.isfinite(slope)
        error = error + 0.5 * slope[is_slope].abs().mean()
    return error + 0.1 * scale.abs().mean()


def class_weights(shares: Float[np.ndarray, " c"]) -> Float[Tensor, " c"]:
    """More for rare classes, because each class counts the same in the mean over classes."""
    common = float(np.median(shares[shares > 0]))
    weights = (common / np.maximum(shares, 1e-6)) ** RARE_CLASS_POWER
    return torch.from_numpy(np.clip(weights, 0.4, 3.0)).float()


@dataclass(slots=True, kw_only=True)
class PredictorTraining:
    """One training run of one predictor."""

    run_dir: Path
    duration_s: float = 720.0  # processor seconds, those of resumed runs included
    batch_size: int = 16
    rate: float = 0.5
    ema_decay: float = 0.995
    seed: int = 0


class PredictorTrainer:
    """Owns the state of one run: network, optimiser, average, clock."""

    def __init__(self, config: PredictorConfig, pool: FramePool, run: PredictorTraining) -> None:
        torch.manual_seed(run.seed)
        self.network = FrameNetwork(config).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.pool = pool
        self.run_settings = run
        self.optimizer = MuonAdam([("predictor", self.network)])
        self.average = MovingAverage(self.network, run.ema_decay)
        self.num_steps = 0
        self.elapsed_s = 0.0
        self._class_weights = class_weights(pool.class_shares())

    @property
    def state_path(self) -> Path:
        """Where the run's state is kept."""
        return self.run_settings.run_dir / "state.pt"

    def save(self) -> None:
        """Write the state under a temporary name, then rename it."""
        self.run_settings.run_dir.mkdir(parents=True, exist_ok=True)
        partial = self.state_path.with_suffix(".partial")
        torch.save(
            {
                "network": self.network.state_dict(),
                "average": self.average.weights,
                "num_updates": self.average.num_updates,
                "optimizer": self.optimizer.state_dict(),
                "num_steps": self.num_steps,
                "elapsed_s": self.elapsed_s,
            },
            partial,
        )
        partial.replace(self.state_path)

    def resume(self) -> bool:
        """Take up an earlier run in the same folder; False where there is none."""
        if not self.state_path.exists():
            return False
        state = torch.load(self.state_path, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average.weights = state["average"]
        self.average.num_updates = state["num_updates"]
        self.num_steps = state["num_steps"]
        self.elapsed_s = state["elapsed_s"]
        return True

    def start_from(self, network: FrameNetwork) -> None:
        """Begin with the weights of a network of the same layout."""
        self.network.load_state_dict(network.state_dict())
        self.average = MovingAverage(self.network, self.run_settings.ema_decay)

    def run(self) -> None:
        """Train until the time is up, saving as it goes; returns after the last save."""
        settings = self.run_settings
        clock = last_save = time.process_time()
        losses: list[float] = []
        while self.elapsed_s < settings.duration_s:
            remaining = 1.0 - self.elapsed_s / settings.duration_s
            warm = (self.num_steps + 1) / WARMUP_STEPS
            self.optimizer.set_rate(settings.rate * min(1.0, warm, remaining / COOL_DOWN))
            losses.append(self.step())
            now = time.process_time()
            self.elapsed_s += now - clock
            clock = now
            if len(losses) == 50:
                self._log(losses)
                losses = []
            if now - last_save > SAVE_EVERY_S:
                self.save()
                last_save = now
        self.save()

    def step(self) -> float:
        """One step on one batch; returns its loss."""
        # Position, not history, decides what a step sees: a resumed run continues the sequence.
        rng = np.random.default_rng([self.run_settings.seed, self.num_steps])
        batch = self.pool.draw(self.run_settings.batch_size, rng)
        found = self.network(batch.pictures.contiguous(memory_format=torch.channels_last))
        if self.network.config.task == "depth":
            loss = depth_loss(found[:, 0], batch.log_depth)
        else:
            loss = functional.cross_entropy(found, batch.class_ids, weight=self._class_weights)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.average.update(self.network)
        self.num_steps += 1
        return loss.item()

    def averaged(self) -> FrameNetwork:
        """The network with its averaged weights."""
        network = FrameNetwork(self.network.config)
        network.load_state_dict(self.average.weights)
        return network.eval()

    def _log(self, losses: list[float]) -> None:
        entry: dict[str, Any] = {
            "step": self.num_steps,
            "frames": self.num_steps * self.run_settings.batch_size,
            "elapsed_s": round(self.elapsed_s, 1),
            "loss": round(float(np.mean(losses)), 4),
        }
        self.run_settings.run_dir.mkdir(parents=True, exist_ok=True)
        with (self.run_settings.run_dir / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
        log.info("%s", entry)


def predictor_config(task: str) -> PredictorConfig:
    """The config of a shipped predictor; classes are those of the scenes."""
    classes = tuple(CLASS_NAMES[i] for i in range(len(CLASS_NAMES))) if task == "seg" else ()
    return PredictorConfig(task=task, classes=classes)


def measure_floor(
    network: FrameNetwork,
    seeds: Sequence[int] = HELD_OUT_SEEDS,
    *,
    size: Size,
    num_frames: int,
) -> Floor:
    """The predictor's own error on true renders: one clip a seed, in its own look."""
    scores: dict[str, list[float]] = {}
    for seed in seeds:
        clip = render_clip(
            seed, height=size.height, width=size.width, num_frames=num_frames, num_looks=1
        )
        if network.config.task == "depth":
            found = DepthPredictor(network).predict(clip.real[0])
            score = depth_si_rmse(found, clip.depth)
        else:
            ids = SegmentationPredictor(network).predict(clip.real[0])
            score = mask_miou(ids, clip.class_ids)
        scores.setdefault(clip.family, []).append(score)
    every = [score for each in scores.values() for score in each]
    return Floor(
        metric="depth_si_rmse" if network.config.task == "depth" else "mask_miou",
        **_mean_with_error(every),
        measured_on=f"true renders of held-out scenes, seeds {seeds[0]} to {seeds[-1]}, "
        f"{size}, {num_frames} frames",
        families={name: _mean_with_error(scores[name]) for name in sorted(scores)},
    )


def _mean_with_error(scores: Sequence[float]) -> dict[str, Any]:
    error = float(np.std(scores, ddof=1)) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
    return {
        "mean": round(float(np.mean(scores)), 4),
        "standard_error": round(error, 4),
        "num_clips": len(scores),
    }


def ship(
    trainer: PredictorTrainer, checkpoint: Path, seeds: Sequence[int] = HELD_OUT_SEEDS
) -> Floor:
    """Write the averaged network into a checkpoint, and measure what was written."""
    folder = checkpoint / PREDICTORS / trainer.network.config.task
    trained = {
        "frames_in_pool": len(trainer.pool),
        "steps": trainer.num_steps,
        "batch_size": trainer.run_settings.batch_size,
        "processor_seconds": round(trainer.elapsed_s),
    }
    save_predictor(folder, trainer.averaged(), floor=None, trained=trained)
    written, _ = load_predictor(folder, task=trainer.network.config.task)
    floor = measure_floor(
        written, seeds, size=trainer.pool.size, num_frames=trainer.pool.num_frames
    )
    save_predictor(folder, written, floor=floor, trained=trained)
    return floor


def main(argv: Sequence[str] | None = None) -> None:
    """Train both predictors, or one, and put them beside a checkpoint."""
    parser = argparse.ArgumentParser(description="Train the predictors that judge outputs.")
    parser.add_argument("--data", type=Path, default=Path("runs/data"))
    parser.add_argument("--run", type=Path, default=Path("runs/predictors"))
    parser.add_argument("--duration", type=float, default=720.0, help="processor seconds, each")
    parser.add_argument("--task", choices=TASKS, action="append", help="both unless given")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument(
        "--start", type=Path, help="checkpoint whose predictors a new run begins with"
    )
    parser.add_argument("--checkpoint", type=Path, help="where predictors/<task>/ is written")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    pool = FramePool(arguments.data)
    for task in arguments.task or TASKS:
        run = PredictorTraining(
            run_dir=arguments.run / task,
            duration_s=arguments.duration,
            batch_size=arguments.batch_size,
        )
        trainer = PredictorTrainer(predictor_config(task), pool, run)
        if not trainer.resume() and arguments.start is not None:
            trainer.start_from(load_predictor(arguments.start / PREDICTORS / task, task=task)[0])
        trainer.run()
        if arguments.checkpoint is not None:
            log.info("%s: floor %s", task, ship(trainer, arguments.checkpoint))


if __name__ == "__main__":
    main()
