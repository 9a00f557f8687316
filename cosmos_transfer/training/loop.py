"""The training loop of the base and the branches: resumable, averaged, logged.

Three ways to train, told apart by what is let free:

``joint``   base and all branches together (how the embedded checkpoint was made)
``base``    the base alone, no controls
``branch``  one branch on a frozen base, as Cosmos-Transfer1 does

Progress is measured in seconds, not in steps: the learning rate is constant and is cooled down
linearly over the last part of the time the run was given. A run's folder holds its state,
``metrics.jsonl`` (a line every few steps) and ``settings.jsonl`` (a line every start).
"""

from __future__ import annotations

import json
import logging
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cosmos_transfer.errors import CheckpointError, ConfigError, explain
from cosmos_transfer.training.batches import Batch, ClipPool
from cosmos_transfer.training.control_draw import draw_active
from cosmos_transfer.training.data import CONTROL_NAMES
from cosmos_transfer.training.ema import MovingAverage
from cosmos_transfer.training.networks import STATE_FILE, UNREADABLE_STATE, EmbeddedNetworks
from cosmos_transfer.training.objective import draw_sigma, flow_loss, visibility_weights
from cosmos_transfer.training.optimizer import MuonAdam
from cosmos_transfer.training.prompts import reword

log = logging.getLogger(__name__)

MODES = ("joint", "base", "branch")
SHARES = (
    "cool_down",
    "share_no_text",
    "share_clean_first",
    "share_single",
    "share_shorter",
    "share_crop",
)
LOG_EVERY = 50
"""Steps whose mean loss makes one line of ``metrics.jsonl``."""


@dataclass(slots=True, kw_only=True)
class TrainingConfig:
    """One training run."""

    data_dir: Path
    run_dir: Path
    mode: str = "joint"
    branch: str | None = None
    duration_s: float = 3_600.0
    cool_down: float = 0.35  # share of the run over which the learning rate falls to zero
    rate: float = 1.0  # factor on both learning rates
    batch_size: int = 8  # latent frames of a step: clips, where only one of theirs is drawn
    warmup_steps: int = 100
    ema_decay: float = 0.998
    share_no_text: float = 0.1
    share_clean_first: float = 0.15  # steps whose first latent frame is given, as in later chunks
    share_single: float = 0.2  # steps on single pictures, which teach as much about materials
    share_shorter: float = 0.2  # steps on some of the latent frames
    share_crop: float = 0.0  # steps on a part of the picture
    seed: int = 0
    save_every_s: float = 240.0
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if self.mode not in MODES:
            raise ConfigError(
                explain(
                    "train",
                    expected="one of " + ", ".join(MODES),
                    got=repr(self.mode),
                    do="Choose one of these.",
                )
            )
        wanted = CONTROL_NAMES if self.mode == "branch" else (None,)
        if self.branch not in wanted:
            raise ConfigError(
                explain(
                    f"train {self.mode}",
                    expected="the name of a control: " + ", ".join(CONTROL_NAMES)
                    if self.mode == "branch"
                    else "no name of a branch",
                    got=repr(self.branch),
                    do="Name the branch with `train branch`, and only there.",
                )
            )
        for name, least in (("duration_s", 0.0), ("rate", 0.0), ("batch_size", 1)):
            if not least <= getattr(self, name) < math.inf:
                raise ConfigError(
                    explain(
                        f"train, {name}",
                        expected=f"a number of at least {least:g}",
                        got=f"{getattr(self, name)}",
                        do="Choose one in range.",
                    )
                )
        for name in SHARES:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(
                    explain(
                        f"train, {name}",
                        expected="a share, from 0 to 1",
                        got=f"{getattr(self, name)}",
                        do="0 is never; a cool_down of 0 keeps the rate to the end.",
                    )
                )


class Trainer:
    """Owns the state of one run: networks, optimiser, average, clock."""

    def __init__(self, networks: EmbeddedNetworks, pool: ClipPool, config: TrainingConfig) -> None:
        self.networks = networks.to(config.device)
        self.pool = pool
        self.config = config
        self.num_steps = 0
        self.num_clips = 0
        self.elapsed_s = 0.0
        self._free_parameters()
        self.optimizer = MuonAdam(self._trained_modules().items())
        self.average = MovingAverage(networks, config.ema_decay)

    def _trained_modules(self) -> dict[str, nn.Module]:
        model = self.networks.model
        if self.config.mode == "branch":
            assert self.config.branch is not None
            return {"branch": model.branches[self.config.branch]}
        modules: dict[str, nn.Module] = {"base": model.transformer}
        if self.config.mode == "joint":
            modules |= {f"branch_{name}": branch for name, branch in model.branches.items()}
        return modules

    def _free_parameters(self) -> None:
        self.networks.requires_grad_(False)
        for module in self._trained_modules().values():
            module.requires_grad_(True)

    @property
    def _trained(self) -> str:
        return self.config.branch or self.config.mode

    @property
    def state_path(self) -> Path:
        """Where the run's state is kept."""
        return self.config.run_dir / STATE_FILE

    def save(self) -> None:
        """Write the state under a temporary name, then rename it."""
        self.config.run_dir.mkdir(parents=True, exist_ok=True)
        partial = self.state_path.with_suffix(".partial")
        torch.save(
            {
                "networks": self.networks.state_dict(),
                "average": self.average.weights,
                "num_updates": self.average.num_updates,
                "optimizer": self.optimizer.state_dict(),
                "num_steps": self.num_steps,
                "num_clips": self.num_clips,
                "elapsed_s": self.elapsed_s,
                "trained": self._trained,
            },
            partial,
        )
        partial.replace(self.state_path)

    def resume(self) -> bool:
        """Take up the state of an earlier run in the same folder; False where there is none."""
        if not self.state_path.exists():
            return False
        trained = self._trained
        try:
            state = torch.load(self.state_path, map_location=self.config.device, weights_only=True)
            if state.get("trained", trained) != trained:
                raise ValueError(f"a run of `{state['trained']}`")
            self.networks.load_state_dict(state["networks"])
            self.optimizer.load_state_dict(state["optimizer"])
        except UNREADABLE_STATE as error:
            raise CheckpointError(
                explain(
                    str(self.state_path),
                    expected=f"the state of a run of `{trained}` with the same networks",
                    got=f"{error}".splitlines()[0] if str(error) else type(error).__name__,
                    do="Give the new run a folder of its own.",
                )
            ) from error
        self.average.weights = state["average"]
        self.average.num_updates = state["num_updates"]
        self.num_steps = state["num_steps"]
        self.num_clips = state["num_clips"]
        self.elapsed_s = state["elapsed_s"]
        return True

    def run(self) -> None:
        """Train until the time is up, saving as it goes; returns after the last save."""
        config = self.config
        self._append("settings.jsonl", {"step": self.num_steps} | asdict(config))
        started = last_save = time.monotonic()
        elapsed_before = self.elapsed_s
        losses: list[float] = []
        while (spent := time.monotonic() - started) < config.duration_s:
            remaining = 1.0 - spent / config.duration_s
            factor = min(1.0, (self.num_steps + 1) / config.warmup_steps)
            if config.cool_down > 0:
                factor *= min(1.0, remaining / config.cool_down)
            self.optimizer.set_rate(config.rate * factor)
            losses.append(self.step())
            self.elapsed_s = elapsed_before + time.monotonic() - started
            if len(losses) == LOG_EVERY:
                self._log(losses)
                losses = []
            if time.monotonic() - last_save > config.save_every_s:
                self.save()
                self.pool.refresh(at_most=4)
                last_save = time.monotonic()
        self.elapsed_s = elapsed_before + time.monotonic() - started
        if losses:
            self._log(losses)
        self.save()

    def step(self) -> float:
        """One step on one batch; returns its mean loss."""
        config = self.config
        # Position, not history, decides what a step sees: a resumed run continues the sequence.
        rng = np.random.default_rng([config.seed, self.num_steps])
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        active = self._draw_active(rng)
        strides = self.networks.autoencoder.strides
        num_frames = self._draw_num_latent_frames(rng)
        batch = self.pool.draw(
            math.ceil(config.batch_size / num_frames),
            active,
            rng,
            num_frames=strides.pixel_frames(num_frames),
            crop=self._draw_crop(rng),
        )
        loss = self._loss(batch, rng, generator)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in self.networks.parameters() if p.requires_grad], 1.0)
        self.optimizer.step()
        self.average.update(self.networks)
        self.num_steps += 1
        self.num_clips += len(batch.prompts)
        return loss.item()

    def _draw_active(self, rng: np.random.Generator) -> tuple[str, ...]:
        if self.config.mode == "base":
            return ()
        if self.config.mode == "branch":
            assert self.config.branch is not None
            return (self.config.branch,)
        return draw_active(CONTROL_NAMES, rng)

    def _draw_num_latent_frames(self, rng: np.random.Generator) -> int:
        config = self.config
        whole = self.networks.autoencoder.strides.latent_frames(self.pool.shards[0].vis.shape[1])
        u = rng.random()
        if u < config.share_single:
            return 1
        if whole > 2 and u < config.share_single + config.share_shorter:
            return int(rng.integers(2, whole))
        return whole

    def _draw_crop(self, rng: np.random.Generator) -> tuple[int, int] | None:
        if rng.random() >= self.config.share_crop:
            return None
        return self.pool.crop_size(self.networks.autoencoder.strides.space)

    def _loss(
        self,
        batch: Batch,
        rng: np.random.Generator,
        generator: torch.Generator,
    ) -> torch.Tensor:
        config, networks = self.config, self.networks
        device = config.device
        encoded = networks.encode_batch(batch, rng, device=device)
        clean = encoded.clean
        prompts = reword(batch.prompts, rng, share_empty=config.share_no_text)
        given = rng.random() < config.share_clean_first and clean.shape[2] > 1
        return flow_loss(
            networks.model,
            clean,
            networks.text_encoder.encode(prompts),
            encoded.controls,
            encoded.weights,
            sigma=draw_sigma(len(clean), generator).to(device),
            noise=torch.randn(clean.shape, generator=generator).to(device),
            num_clean_frames=1 if given else 0,
            channel_weights=visibility_weights(networks.autoencoder.channel_deviations),
        ).mean()

    def _log(self, losses: list[float]) -> None:
        entry: dict[str, Any] = {
            "step": self.num_steps,
            "clips": self.num_clips,
            "elapsed_s": round(self.elapsed_s, 1),
            "loss": round(float(np.mean(losses)), 4),
            "scenes": self.pool.num_scenes,
        }
        self._append("metrics.jsonl", entry)
        log.info("%s", entry)

    def _append(self, name: str, entry: dict[str, Any]) -> None:
        self.config.run_dir.mkdir(parents=True, exist_ok=True)
        with (self.config.run_dir / name).open("a") as file:
            file.write(json.dumps(entry, default=str) + "\n")
