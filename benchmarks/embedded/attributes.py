"""A small classifier that reads a prompt's attributes off a clip, trained on true renders.

It sees single frames: four strided convolutions, their pooled maps, one linear head an attribute.
It learns from scenes of training seeds alone, under looks drawn at random; pictures are mirrored,
recoloured, blurred and made noisy a little, as for the predictors, so that an output is not judged
by how sharp it is. Training is a fixed number of steps from a fixed seed, on one thread: the same
weights each time, in less than three minutes of one core. They are kept under a name that holds
the hash of all that they depend on.

The distance between two clips is LPIPS's (Zhang et al., arXiv:1801.03924, equation 1) with this
network's maps and equal channel weights: maps scaled to unit length over channels, squared
differences, the mean over places, stages and frames.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int, UInt8
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from cosmos_transfer.shapes import Size
from cosmos_transfer.training import scenes
from cosmos_transfer.training.data import FIRST_TRAINING_SEED
from cosmos_transfer.training.predictors import disturb
from cosmos_transfer.training.scenes import VOCABULARY, Look, render_clip

ATTRIBUTES = ("time_of_day", "weather", "table", "wall")
VALUES: Mapping[str, tuple[str, ...]] = {name: tuple(VOCABULARY[name]) for name in ATTRIBUTES}
WIDTHS = (24, 48, 80, 112)
NUM_SCENES, LOOKS_PER_SCENE = 300, 4
NUM_STEPS, BATCH_SIZE = 360, 32
LARGEST_RATE, WEIGHT_DECAY, LABEL_SMOOTHING = 2e-3, 0.05, 0.05
ABSENT = -100  # an attribute that a family does not have: cross entropy leaves it out
NUM_JUDGED = 5  # frames of a clip, evenly spaced


class AttributeNetwork(nn.Module):
    """Frames in [-1, 1] to logits, an attribute a head."""

    def __init__(self) -> None:
        super().__init__()
        stages, before = [], 3
        for index, width in enumerate(WIDTHS):
            kernel = 5 if index == 0 else 3
            stages.append(
                nn.Sequential(
                    nn.Conv2d(before, width, kernel, stride=2, padding=kernel // 2),
                    nn.GroupNorm(8, width),
                    nn.SiLU(),
                )
            )
            before = width
        self.stages = nn.ModuleList(stages)
        pooled = 2 * sum(WIDTHS[1:])
        self.heads = nn.ModuleDict(
            {name: nn.Linear(pooled, len(values)) for name, values in VALUES.items()}
        )

    def maps(self, frames: Float[Tensor, "b 3 h w"]) -> list[Tensor]:
        """What every stage sees."""
        found = []
        for stage in self.stages:
            frames = stage(frames)
            found.append(frames)
        return found

    def forward(self, frames: Float[Tensor, "b 3 h w"]) -> dict[str, Float[Tensor, "b _"]]:
        """Logits by attribute."""
        pooled = torch.cat(
            [
                pool
                for map_ in self.maps(frames)[1:]
                for pool in (map_.mean((2, 3)), map_.amax((2, 3)))
            ],
            dim=1,
        )
        return {name: head(pooled) for name, head in self.heads.items()}


class AttributeClassifier:
    """The network, asked about clips."""

    def __init__(self, network: AttributeNetwork) -> None:
        self.network = network.eval()

    @torch.inference_mode()
    def read(self, frames: UInt8[np.ndarray, "f h w 3"]) -> dict[str, str]:
        """The likeliest value of every attribute; logits are averaged over frames."""
        logits = self.network(_judged(frames))
        return {name: VALUES[name][int(each.mean(0).argmax())] for name, each in logits.items()}

    @torch.inference_mode()
    def directions(self, frames: UInt8[np.ndarray, "f h w 3"]) -> list[Float[Tensor, "f c y x"]]:
        """The maps of every stage, of unit length over channels: what distances are taken of."""
        return [functional.normalize(map_, dim=1) for map_ in self.network.maps(_judged(frames))]


def distance(
    first: Sequence[Float[Tensor, "f _ _ _"]],
    second: Sequence[Float[Tensor, "f _ _ _"]],
    region: Bool[np.ndarray, "f h w"] | None = None,
) -> float:
    """How far apart two clips' ``directions`` lie, from 0 to 4.

    Args:
        first: Of one clip.
        second: Of another of the same size.
        region: Count these pixels alone; a place of a map counts by its share of them.
    """
    shares = None if region is None else torch.from_numpy(_spaced(region)).float()[:, None]
    stages = []
    for a, b in zip(first, second, strict=True):
        apart = ((a - b) ** 2).sum(1, keepdim=True)
        if shares is None:
            stages.append(float(apart.mean()))
            continue
        weight = functional.interpolate(shares, apart.shape[-2:], mode="area")
        stages.append(float((apart * weight).sum() / weight.sum().clamp_min(1e-6)))
    return float(np.mean(stages))


def mean_pairwise(clips: Sequence[Sequence[Tensor]], region: np.ndarray | None = None) -> float:
    """The mean distance over all pairs of some clips' ``directions``."""
    pairs = [(a, b) for index, a in enumerate(clips) for b in clips[index + 1 :]]
    return float(np.mean([distance(a, b, region) for a, b in pairs]))


def right(read: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, bool]:
    """For every attribute that a look names, whether it was read."""
    return {name: read[name] == wanted[name] for name in ATTRIBUTES if name in wanted}


def kept_classifier(folder: Path, size: Size) -> AttributeClassifier:
    """The classifier for pictures of a size: from the folder, or trained and put there."""
    path = folder / f"attributes-{size}-{_fingerprint(size)}.safetensors"
    network = AttributeNetwork()
    if not path.is_file():
        trained = train(size, num_steps=NUM_STEPS, num_scenes=NUM_SCENES)
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        save_file(trained.state_dict(), partial)
        partial.replace(path)
    network.load_state_dict(load_file(path))
    return AttributeClassifier(network)


def train(size: Size, *, num_steps: int, num_scenes: int) -> AttributeNetwork:
    """Render pictures of training seeds and learn them; the same weights each time."""
    pictures, labels = training_pictures(size, num_scenes)
    rng = np.random.default_rng(0)
    with torch.inference_mode(False), torch.enable_grad(), _one_thread(), torch.random.fork_rng():
        torch.manual_seed(0)
        network = AttributeNetwork().train()
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=LARGEST_RATE, weight_decay=WEIGHT_DECAY
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=LARGEST_RATE, total_steps=num_steps
        )
        for _ in range(num_steps):
            chosen = rng.integers(len(pictures), size=BATCH_SIZE)
            batch = np.stack(
                [
                    disturb(np.ascontiguousarray(pictures[i][:, :: rng.choice((-1, 1))]), rng)
                    for i in chosen
                ]
            )
            logits = network(torch.from_numpy(rearrange(batch, "b h w c -> b c h w")) * 2.0 - 1.0)
            wanted = torch.from_numpy(labels[chosen])
            loss = torch.stack(
                [
                    functional.cross_entropy(
                        logits[name], wanted[:, i], reduction="sum", label_smoothing=LABEL_SMOOTHING
                    )
                    for i, name in enumerate(ATTRIBUTES)
                ]
            ).sum()
            optimizer.zero_grad()
            (loss / BATCH_SIZE).backward()
            optimizer.step()
            schedule.step()
    return network


def training_pictures(
    size: Size, num_scenes: int
) -> tuple[UInt8[np.ndarray, "n h w 3"], Int[np.ndarray, "n a"]]:
    """Single frames of training seeds under several looks, and the place of every value."""
    pictures, labels = [], []
    for seed in range(FIRST_TRAINING_SEED, FIRST_TRAINING_SEED + num_scenes):
        clip = render_clip(
            seed,
            height=size.height,
            width=size.width,
            num_frames=1,
            num_looks=LOOKS_PER_SCENE,
        )
        for look, frames in zip(clip.looks, clip.real, strict=True):
            pictures.append(frames[0])
            labels.append(_label(look))
    return np.stack(pictures), np.array(labels, dtype=np.int64)


def _label(look: Look) -> list[int]:
    named = look.attributes()
    return [VALUES[name].index(named[name]) if name in named else ABSENT for name in ATTRIBUTES]


def _spaced(frames: np.ndarray) -> np.ndarray:
    """The frames that are judged."""
    return frames[np.linspace(0, len(frames) - 1, NUM_JUDGED).round().astype(int)]


def _judged(frames: UInt8[np.ndarray, "f h w 3"]) -> Float[Tensor, "g 3 h w"]:
    pictures = torch.from_numpy(_spaced(frames)).float() / 127.5 - 1.0
    return rearrange(pictures, "f h w c -> f c h w")


def _fingerprint(size: Size) -> str:
    """Of everything that decides the weights: this file, the scenes, the size, torch."""
    digest = hashlib.sha256(f"{size} {torch.__version__}".encode())
    folder = Path(scenes.__file__).parent
    for path in (Path(__file__), *sorted(folder.glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
