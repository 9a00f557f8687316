"""A checkpoint pruned and stored compressed, with the price of it measured on a trial run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from cosmos_transfer.diffusion.noise_schedule import checkpoint_sigmas
from cosmos_transfer.diffusion.samplers import get_sampler
from cosmos_transfer.diffusion.start import start_latents
from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.inputs.video import read_clip, resize_frames
from cosmos_transfer.model.checkpoint import (
    INDEX,
    Checkpoint,
    checkpoint_info,
    find_checkpoint,
    load_checkpoint,
)
from cosmos_transfer.model.controlled import ConditionedModel
from cosmos_transfer.offload.files import Sizes, is_packed, read_packed, write_packed
from cosmos_transfer.offload.prune import PruneReport, check_pruning, measured_inputs, prune
from cosmos_transfer.shapes import Size

TRIAL_SIGMAS = (0.95, 0.7, 0.4, 0.1)
TRIAL_SEED, TRIAL_STEPS = 0, 8
# The trial of a large model stays small: the layers' inputs are what is wanted, not a picture.
TRIAL_LONGEST_SIDE, TRIAL_FRAMES = 256, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedCheckpoint:
    """What was written and what it costs.

    ``output_error`` is the relative RMS of the denoiser's output on the trial run, per sigma;
    ``psnr_db`` compares the clips that both models make of the same noise.
    """

    folder: Path
    method: str
    parts: Mapping[str, PruneReport]
    sizes: Mapping[str, Sizes]
    output_error: Mapping[float, float]
    psnr_db: float

    @property
    def ratio(self) -> float:
        """Stored size of the pruned networks over their dense size."""
        stored = sum(each.stored for each in self.sizes.values())
        return stored / max(1, sum(each.dense for each in self.sizes.values()))

    def text(self) -> str:
        """The report as lines for a person."""
        width = max(len(name) for name in self.parts)
        lines = [f"pruned by {self.method}; stored at {self.ratio:.3f} of the dense size"]
        for name, part in self.parts.items():
            size = self.sizes[name]
            lines.append(
                f"  {name:<{width}}  {part.sparsity:6.1%} zeros  {size.dense / 1e6:9.2f} MB -> "
                f"{size.stored / 1e6:.2f} MB ({size.ratio:.3f})  weights off by "
                f"{part.relative_rms:.3f}"
            )
        lines.append("error of the denoised latents on the trial run (relative RMS):")
        lines += [f"  sigma {sigma:g}: {error:.3f}" for sigma, error in self.output_error.items()]
        lines.append(
            f"clip made by the pruned model against that by the dense one: {self.psnr_db:.1f} dB"
        )
        return "\n".join(lines)


@torch.inference_mode()
def prune_checkpoint(
    name_or_path: str | Path,
    output: str | Path,
    *,
    sparsity: float = 0.5,
    method: str = "magnitude",
    clip: Path | None = None,
    overwrite: bool = False,
) -> PrunedCheckpoint:
    """Prune a checkpoint's base and branches and write the result, compressed.

    Args:
        name_or_path: ``embedded``, or a folder in our layout or diffusers'.
        output: Folder to write; beside it first, then renamed.
        sparsity: Share of each matrix that becomes zero.
        method: ``magnitude`` or ``wanda``.
        clip: The clip of the trial run; a drawn one by default.
        overwrite: Replace ``output``.

    Raises:
        CheckpointError: The checkpoint has no such layout, or ``output`` exists.
    """
    check_pruning(method, sparsity)
    output = Path(output)
    if output.exists() and not overwrite:
        raise CheckpointError(
            explain(
                "prune",
                expected="a folder that does not exist",
                got=f"{output}",
                do="Choose another name, or pass --overwrite.",
            )
        )
    source = find_checkpoint(name_or_path, local_files_only=True)
    info = checkpoint_info(name_or_path, local_files_only=True)
    if source.folder is None or info.layout not in ("embedded", "diffusers"):
        raise CheckpointError(
            explain(
                "prune",
                expected="'embedded', or a folder in diffusers' layout",
                got=info.layout,
                do="Convert it first: docs/checkpoints.md says how.",
            )
        )
    # The embedded text encoder is small; the published ones are larger than the model.
    checkpoint = load_checkpoint(
        name_or_path, with_text_encoder=info.layout == "embedded", local_files_only=True
    )
    networks = _networks(checkpoint)
    trial = _Trial(checkpoint, _trial_frames(checkpoint, clip))
    with ExitStack() as stack:
        norms = {
            name: stack.enter_context(measured_inputs(network))
            for name, network in networks.items()
        }
        before = trial.run()
    made_before = trial.generate()
    parts = {
        name: prune(network, sparsity=sparsity, method=method, input_norms=norms[name])
        for name, network in networks.items()
    }
    after = trial.run()
    folders = _folders(checkpoint, source.folder)
    sizes = _write(source.folder, output, networks, folders, sparsity, method)
    return PrunedCheckpoint(
        folder=output,
        method=method,
        parts=parts,
        sizes=sizes,
        output_error={sigma: _relative_rms(after[sigma], before[sigma]) for sigma in before},
        psnr_db=_psnr(trial.generate(), made_before),
    )


class _Trial:
    """The denoiser on one clip with all its controls, at a few sigmas."""

    def __init__(self, checkpoint: Checkpoint, frames: Tensor) -> None:
        self._checkpoint = checkpoint
        model = checkpoint.model
        clean = checkpoint.autoencoder.encode(frames)
        generator = torch.Generator().manual_seed(TRIAL_SEED)
        self._clean = clean
        self._noise = torch.randn(clean.shape, generator=generator)
        controls = {name: checkpoint.autoencoder.encode_control(frames) for name in model.branches}
        tokens = math.prod(
            size // patch for size, patch in zip(clean.shape[2:], model.patch, strict=True)
        )
        weight = 1.0 / max(1, len(controls))
        weights = {name: torch.full((1, tokens), weight) for name in controls}
        self._inputs = (_text(checkpoint, generator), controls, weights)

    def _denoiser(self) -> ConditionedModel:
        # Bound anew: some branches run while a model is conditioned, not at every step.
        return self._checkpoint.model.conditioned_on(*self._inputs)

    def run(self) -> dict[float, Tensor]:
        """Denoised latents by sigma."""
        denoiser = self._denoiser()
        return {
            sigma: denoiser((1 - sigma) * self._clean + sigma * self._noise, sigma)
            for sigma in TRIAL_SIGMAS
        }

    def generate(self) -> Tensor:
        """A clip from noise, in a few steps, as video in [-1, 1]."""
        info = self._checkpoint.info
        sigmas = checkpoint_sigmas(TRIAL_STEPS, shift=info.shift, karras=info.karras)
        begin = start_latents(self._noise, sigmas[0], scale_noise=info.sigma_data is not None)
        latents = get_sampler("euler")(self._denoiser(), begin, sigmas)
        return self._checkpoint.autoencoder.decode(latents)


def _text(checkpoint: Checkpoint, generator: torch.Generator) -> Tensor:
    """An encoded prompt, or numbers of the size of one where there is no encoder."""
    if checkpoint.text_encoder is not None:
        encoded: Tensor = checkpoint.text_encoder.encode(["a snowy street at night"])
        return encoded
    config: Any = checkpoint.model.transformer.config
    width = (
        config.crossattn_proj_in_channels
        if config.use_crossattn_projection
        else config.text_embed_dim
    )
    return torch.randn(1, 16, int(width), generator=generator)


def _trial_frames(checkpoint: Checkpoint, clip: Path | None) -> Tensor:
    info = checkpoint.info
    longest = max(info.native_size.height, info.native_size.width)
    scale = min(1.0, TRIAL_LONGEST_SIDE / longest)
    step = info.spatial_multiple
    size = Size(
        max(step, int(info.native_size.height * scale) // step * step),
        max(step, int(info.native_size.width * scale) // step * step),
    )
    count = info.strides.pixel_frames(
        info.strides.latent_frames(info.strides.padded_frames(TRIAL_FRAMES))
    )
    count = min(count, info.native_frames)
    if clip is None:
        frames = _drawn(count, size)
    else:
        read = read_clip(clip, max_frames=count).frames
        held = np.minimum(np.arange(count), len(read) - 1)
        frames = resize_frames(read[held], size, how="area")
    video = torch.from_numpy(np.ascontiguousarray(frames)).permute(3, 0, 1, 2)[None]
    return video.float() / 127.5 - 1.0


def _drawn(num_frames: int, size: Size) -> np.ndarray:
    """A disc that crosses a room of soft colours: edges, areas and motion."""
    y, x = np.mgrid[0 : size.height, 0 : size.width]
    frames = []
    for index in range(num_frames):
        sky = np.stack([90 + 60 * y / size.height, 120 + 0 * y, 200 - 90 * y / size.height], -1)
        centre = size.width * (0.2 + 0.6 * index / max(1, num_frames - 1))
        disc = (x - centre) ** 2 + (y - 0.6 * size.height) ** 2 < (0.2 * size.height) ** 2
        frames.append(np.where(disc[..., None], (220, 80, 40), sky))
    return np.stack(frames).round().astype(np.uint8)


def _networks(checkpoint: Checkpoint) -> dict[str, nn.Module]:
    return {
        "transformer": checkpoint.model.transformer,
        **{f"control {name}": branch for name, branch in checkpoint.model.branches.items()},
    }


def _folders(checkpoint: Checkpoint, folder: Path) -> dict[str, str]:
    found = find_checkpoint(folder).control_folders()
    return {
        "transformer": "transformer",
        **{f"control {name}": found[name] for name in checkpoint.model.branches},
    }


def _write(
    folder: Path,
    output: Path,
    networks: Mapping[str, nn.Module],
    folders: Mapping[str, str],
    sparsity: float,
    method: str,
) -> dict[str, Sizes]:
    """Copy a checkpoint, its pruned networks compressed in the dtype they were stored in."""
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    try:
        draft.chmod(0o755)
        shutil.copytree(folder, draft, dirs_exist_ok=True)
        sizes = {}
        for name, network in networks.items():
            zeroed = {key: value == 0 for key, value in network.state_dict().items()}
            stored = dense = 0
            for path in sorted((draft / folders[name]).glob("*.safetensors")):
                weights = dict(_pruned(path, zeroed))
                size = write_packed(path, weights, metadata=_metadata(path))
                stored, dense = stored + size.stored, dense + size.dense
            sizes[name] = Sizes(stored=stored, dense=dense)
        _update_index(draft, sparsity, method)
        if output.exists():
            shutil.rmtree(output)
        os.replace(draft, output)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return sizes


def _pruned(path: Path, zeroed: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for key, value in read_packed(path).items():
        mask = zeroed.get(key)
        yield key, value if mask is None else value.masked_fill(mask, 0)


def _metadata(path: Path) -> dict[str, str]:
    if is_packed(path):
        return {}
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def _update_index(draft: Path, sparsity: float, method: str) -> None:
    """Our layout records hashes and an id; diffusers' records neither."""
    path = draft / INDEX
    if not path.is_file():
        return
    index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "sha256" not in index:
        return
    index["id"] = f"{index['id']}-{method}{round(100 * sparsity)}"
    index["pruned"] = {"sparsity": sparsity, "method": method}
    for name in index["sha256"]:
        with (draft / name).open("rb") as file:
            index["sha256"][name] = hashlib.file_digest(file, "sha256").hexdigest()
    path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _relative_rms(got: Tensor, want: Tensor) -> float:
    error, size = (got - want).double().square().mean(), want.double().square().mean()
    return float((error / size.clamp_min(1e-30)).sqrt())


def _psnr(got: Tensor, want: Tensor) -> float:
    error = float((got - want).double().square().mean())
    return 10.0 * math.log10(4.0 / error) if error else math.inf
