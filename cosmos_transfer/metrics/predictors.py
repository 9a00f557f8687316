"""Two small networks that judge the embedded model's outputs: depth and classes from one frame.

They know the procedural scenes of ``training.scenes`` and nothing else, at 64 to 96 rows of
pixels. Frames far larger or smaller are brought to that, and what was found is brought back. Each
call sees every frame by itself.

``depth``  logarithm of planar depth, up to scale: compare it with ``depth_si_rmse``
``seg``    one of the classes that the config names

Both are estimators in the sense of ``controls.registry``: a clip goes in, a ``DepthClip`` or a
``SegmentationClip`` comes out. Their folder in a checkpoint is ``predictors/<task>/``, a
``config.json`` and one fp16 safetensors file. The config holds the hash of the weights and the
**floor**: the error that remains on true renders of held-out scenes, as it was measured. What a
metric reads on an output cannot be understood without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Float32, Int32, UInt8
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from cosmos_transfer.errors import CheckpointError, ConfigError, explain
from cosmos_transfer.inputs.depth import DepthClip
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.inputs.video import VideoClip, resize_frames
from cosmos_transfer.model.checkpoint import EMBEDDED, find_checkpoint
from cosmos_transfer.model.checkpoint_parts import PREDICTORS, load_strictly
from cosmos_transfer.shapes import Size, reflected_indices, round_up, working_size

TASKS = ("depth", "seg")
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"

NATIVE_SHORT_SIDE = 96
SHORT_SIDES = (
    48,
    144,
)  # frames whose short side is not between these are brought to the native one
SPATIAL_MULTIPLE = 8  # three halvings
FRAMES_AT_ONCE = 16
GROUPS = 4
MIDDLE_LOG_DEPTH = 1.5  # about 4.5 m, where the untrained depth predictor starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What a predictor's own metric reads on true renders that it was never trained on.

    ``families`` holds mean, standard error and number of clips by kind of scene: metres of a street
    and of a table are far apart.
    """

    metric: str
    mean: float
    standard_error: float
    num_clips: int
    measured_on: str
    families: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        """The numbers and where they come from, on one line."""
        parts = [
            f"{name} {each['mean']:.3f} ± {each['standard_error']:.3f} (n={each['num_clips']})"
            for name, each in self.families.items()
        ]
        whole = f"{self.mean:.3f} ± {self.standard_error:.3f} (n={self.num_clips})"
        return f"{whole} on {self.measured_on}" + "".join(f"; {part}" for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorConfig:
    """One predictor. ``classes`` is empty for depth; a class id is its place in the list."""

    task: str
    classes: tuple[str, ...] = ()
    pixel_width: int = 12  # channels at full resolution
    widths: tuple[int, int, int] = (24, 48, 88)  # at a half, a quarter and an eighth

    def __post_init__(self) -> None:
        """Refuse a task that is not there, and classes where they mean nothing."""
        if self.task not in TASKS:
            raise ConfigError(
                explain(
                    "predictor",
                    expected="one of " + ", ".join(TASKS),
                    got=repr(self.task),
                    do="Choose one of these.",
                )
            )
        if (self.task == "seg") != bool(self.classes):
            raise ConfigError(
                explain(
                    f"predictor '{self.task}', classes",
                    expected="names for seg, none for depth",
                    got=f"{len(self.classes)} names",
                    do="Give seg its classes.",
                )
            )

    @property
    def num_outputs(self) -> int:
        """Numbers per pixel that the network gives."""
        return len(self.classes) or 1


class _Block(nn.Module):
    """Two 3x3 convolutions around a skip, each after a group norm.

    The norm's statistics run over the whole picture: a night scene is brought to the contrast of a
    day scene before anything is decided.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.GroupNorm(GROUPS, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(GROUPS, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return x + self.layers(x)


class FrameNetwork(nn.Module):
    """A U-Net over single frames, three halvings deep, about 0.3 M parameters."""

    def __init__(self, config: PredictorConfig) -> None:
        super().__init__()
        self.config = config
        pixel, (half, quarter, eighth) = config.pixel_width, config.widths
        self.stem = nn.Conv2d(3, pixel, 3, padding=1)
        self.to_half = nn.Conv2d(pixel, half, 4, stride=2, padding=1)
        self.to_quarter = nn.Conv2d(half, quarter, 4, stride=2, padding=1)
        self.to_eighth = nn.Conv2d(quarter, eighth, 4, stride=2, padding=1)
        self.down_blocks = nn.ModuleList([_Block(half), _Block(quarter), _Block(eighth)])
        self.from_eighth = nn.Conv2d(eighth, quarter, 1)
        self.from_quarter = nn.Conv2d(quarter, half, 1)
        self.from_half = nn.Conv2d(half, pixel, 1)
        self.up_blocks = nn.ModuleList([_Block(quarter), _Block(half), _Block(pixel)])
        self.head = nn.Conv2d(pixel, config.num_outputs, 3, padding=1)
        if config.task == "depth":
            assert self.head.bias is not None
            nn.init.constant_(self.head.bias, MIDDLE_LOG_DEPTH)

    def forward(self, frames: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b o h w"]:
        """Log depth, or the logits of the classes; frames in [-1, 1], sides multiples of 8."""
        pixels = self.stem(frames)
        half = self.down_blocks[0](self.to_half(pixels))
        quarter = self.down_blocks[1](self.to_quarter(half))
        eighth = self.down_blocks[2](self.to_eighth(quarter))
        quarter = self.up_blocks[0](quarter + _doubled(self.from_eighth(eighth)))
        half = self.up_blocks[1](half + _doubled(self.from_quarter(quarter)))
        return self.head(self.up_blocks[2](pixels + _doubled(self.from_half(half))))


class DepthPredictor:
    """Planar depth up to scale; an estimator of ``controls.depth``."""

    def __init__(self, network: FrameNetwork, floor: Floor | None = None) -> None:
        self.network = network.eval()
        self.floor = floor

    def __call__(self, clip: VideoClip) -> DepthClip:
        """Depth of every frame at the clip's size."""
        return DepthClip(metres=self.predict(clip.frames))

    def predict(self, frames: UInt8[np.ndarray, "f h w 3"]) -> Float32[np.ndarray, "f h w"]:
        """Depth of every frame, positive, in no particular unit."""
        return np.exp(_outputs(self.network, frames)[:, 0])


class SegmentationPredictor:
    """One of the known classes at every pixel; an estimator of ``controls.seg``."""

    def __init__(self, network: FrameNetwork, floor: Floor | None = None) -> None:
        self.network = network.eval()
        self.floor = floor

    @property
    def names(self) -> dict[int, str]:
        """Every class it knows, by id."""
        return dict(enumerate(self.network.config.classes))

    def __call__(self, clip: VideoClip) -> SegmentationClip:
        """Ids of every frame at the clip's size."""
        return SegmentationClip(ids=self.predict(clip.frames), names=self.names)

    def predict(self, frames: UInt8[np.ndarray, "f h w 3"]) -> Int32[np.ndarray, "f h w"]:
        """The likeliest class at every pixel."""
        return _outputs(self.network, frames).argmax(axis=1).astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictors:
    """Both predictors of a checkpoint."""

    depth: DepthPredictor
    seg: SegmentationPredictor


def load_predictors(name_or_path: str | Path = EMBEDDED) -> Predictors:
    """Load the predictors that lie beside a checkpoint in our layout.

    Raises:
        CheckpointError: They are missing or damaged, or there is no checkpoint.
    """
    folder = find_checkpoint(name_or_path).folder
    if folder is None or not (folder / PREDICTORS).is_dir():
        raise CheckpointError(
            explain(
                f"checkpoint {name_or_path}",
                expected=f"a folder {PREDICTORS}/ in it",
                got="none",
                do="Use the embedded checkpoint, or pass estimators.",
            )
        )
    network, floor = load_predictor(folder / PREDICTORS / "depth", task="depth")
    depth = DepthPredictor(network, floor)
    network, floor = load_predictor(folder / PREDICTORS / "seg", task="seg")
    return Predictors(depth=depth, seg=SegmentationPredictor(network, floor))


def load_predictor(folder: Path, *, task: str) -> tuple[FrameNetwork, Floor | None]:
    """Load one predictor strictly: known config, recorded hash, every weight and no other.

    Raises:
        CheckpointError: Anything is missing, damaged, or of another task.
    """
    where = f"predictor {folder}"
    config, values = _read_config(folder, task, where)
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise CheckpointError(
            explain(where, expected=WEIGHTS_FILE, got="none", do="Fetch the checkpoint again.")
        )
    digest = _sha256(path)
    if digest != values.get("sha256"):
        raise CheckpointError(
            explain(
                where,
                expected=f"{WEIGHTS_FILE} with sha256 {values.get('sha256')}",
                got=digest,
                do="Fetch it again; weights and config must be of one predictor.",
            )
        )
    network = FrameNetwork(config)
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise CheckpointError(
            explain(
                where,
                expected=f"safetensors in {WEIGHTS_FILE}",
                got=f"{error}",
                do="Fetch the checkpoint again.",
            )
        ) from error
    load_strictly(network, weights, where=where)
    network.eval().requires_grad_(False)
    return network, None if values["floor"] is None else Floor(**values["floor"])


def save_predictor(
    folder: Path,
    network: FrameNetwork,
    *,
    floor: Floor | None,
    trained: dict[str, Any] | None = None,
) -> None:
    """Write one predictor in fp16.

    Args:
        folder: ``<checkpoint>/predictors/<task>``; made, or its two files replaced.
        network: What to write.
        floor: As measured with the fp16 weights; None for one that was not measured.
        trained: How it came to be, in plain values, for whoever reads the config.
    """
    folder.mkdir(parents=True, exist_ok=True)
    halves = {
        key: value.detach().cpu().to(torch.float16).contiguous()
        for key, value in network.state_dict().items()
    }
    if unfit := [key for key, value in halves.items() if not bool(torch.isfinite(value).all())]:
        raise CheckpointError(
            explain(
                f"predictor {folder}",
                expected="weights that are finite in fp16",
                got="infinity or NaN in " + ", ".join(unfit),
                do="Do not ship this training run.",
            )
        )
    partial = folder / f".{WEIGHTS_FILE}"
    save_file(halves, partial, metadata={"format": "pt"})
    partial.chmod(0o644)  # safetensors writes for its owner alone
    content = {
        **asdict(network.config),
        "sha256": _sha256(partial),
        "floor": None if floor is None else asdict(floor),
        "trained": trained or {},
    }
    partial.replace(folder / WEIGHTS_FILE)
    (folder / CONFIG_FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _read_config(folder: Path, task: str, where: str) -> tuple[PredictorConfig, dict[str, Any]]:
    try:
        values = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        config = PredictorConfig(
            task=values["task"],
            classes=tuple(values["classes"]),
            pixel_width=int(values["pixel_width"]),
            widths=tuple(values["widths"]),
        )
        floor = values["floor"]
        if floor is not None:
            Floor(**floor)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            explain(
                where,
                expected=f"a complete {CONFIG_FILE}",
                got=f"{type(error).__name__}: {error}",
                do="Fetch the checkpoint again.",
            )
        ) from error
    if config.task != task:
        raise CheckpointError(
            explain(
                where,
                expected=f"a predictor of {task}",
                got=config.task,
                do="Put each predictor into the folder of its task.",
            )
        )
    return config, values


def _outputs(
    network: FrameNetwork, frames: UInt8[np.ndarray, "f h w 3"]
) -> Float32[np.ndarray, "f o h w"]:
    """What the network gives for every frame, at the frames' own size."""
    size = Size(*frames.shape[1:3])
    seen = size
    if not SHORT_SIDES[0] <= min(size.height, size.width) <= SHORT_SIDES[1]:
        seen = working_size(size, short_side=NATIVE_SHORT_SIDE)
        frames = resize_frames(frames, seen, how="area")
    padded = Size(round_up(seen.height, SPATIAL_MULTIPLE), round_up(seen.width, SPATIAL_MULTIPLE))
    rows = list(reflected_indices(seen.height, padded.height))
    columns = list(reflected_indices(seen.width, padded.width))
    device = next(network.parameters()).device
    pieces = []
    with torch.inference_mode():
        for start in range(0, len(frames), FRAMES_AT_ONCE):
            piece = frames[start : start + FRAMES_AT_ONCE, rows][:, :, columns]
            picture = torch.from_numpy(np.ascontiguousarray(piece)).to(device).float()
            found = network(rearrange(picture, "f h w c -> f c h w") / 127.5 - 1.0)
            found = found[:, :, : seen.height, : seen.width]
            if seen != size:
                found = functional.interpolate(
                    found, (size.height, size.width), mode="bilinear", align_corners=False
                )
            pieces.append(found.cpu().numpy())
    return np.concatenate(pieces)


def _doubled(x: Float[Tensor, "b c y x"]) -> Float[Tensor, "b c h w"]:
    return functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
