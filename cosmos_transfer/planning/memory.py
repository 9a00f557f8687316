"""Peak memory of a request, stage by stage, before anything is loaded.

Networks are built on ``meta`` at their full size and run there with the request's sizes; what the
tensors alive at the worst moment would take is counted (``live_bytes``), which follows every
change of a network or of our loop. To it come the weights that are resident in that stage, and on
a processor what Python and its libraries take, which is measured.

    peak(stage) = resident weights + live tensors + frames held + the process

Text encoders are counted by their published sizes: they run alone, before the rest.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cosmos_transfer.autoencoder.base import Autoencoder
from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.offload.options import MemoryOptions
from cosmos_transfer.planning.live_bytes import counted, parameter_bytes
from cosmos_transfer.shapes import Size, Strides

CARDS_GB = (12, 16, 24, 48, 80)
# What a CUDA context, its libraries and the caching allocator's rounding take; a rule of thumb that
# scripts/gpu_check_transfer.py measures where there is a GPU.
CUDA_CONTEXT_BYTES = int(0.6e9)
ALLOCATOR_SLACK = 1.06
# On a processor: convolutions' scratch and what malloc keeps; from benchmarks/memory.py.
CPU_SLACK = 1.25
# Weights of the text encoders in 16 bits: Qwen2.5-VL-7B without its vision half; T5-11B's encoder.
TEXT_ENCODER_BYTES = {"2.5": int(15.2e9), "1": int(9.5e9), "embedded": 100_000}
# diffusers' tiles of the autoencoder: 256 pixels, one every 192.
TILE, TILE_STEP = 256, 192


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is to be generated: one chunk of it decides the peak.

    ``num_frames`` is the clip's; ``chunk_frames`` the longest chunk's, on the autoencoder's grid.
    """

    size: Size
    num_frames: int
    chunk_frames: int
    num_controls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """The parts of a checkpoint, on ``meta`` or loaded; only their sizes are read."""

    family: str  # "2.5", "1" or "embedded"
    model: ControlledModel
    autoencoder: Autoencoder
    text_width: int
    text_tokens: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage's peak in bytes and what it is made of."""

    name: str
    weights: int
    live: int
    frames: int
    process: int

    @property
    def total(self) -> int:
        """The peak."""
        return self.weights + self.live + self.frames + self.process


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The stages of a request under one set of options."""

    options: MemoryOptions
    stages: tuple[Stage, ...]
    has_text_encoder: bool

    @property
    def peak(self) -> int:
        """The worst stage's."""
        return max(stage.total for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What running the networks takes, independent of the options."""

    base_bytes: int
    branch_bytes: int
    largest_block_bytes: int
    block_bytes: int
    autoencoder_bytes: int
    text_encoder_bytes: int
    denoise_live: int
    encode_live: int
    decode_live: int
    encode_tiled: int
    decode_tiled: int
    frame_bytes: int
    element_size: int
    num_networks: int


def count(networks: Networks, work: Workload, *, dtype: torch.dtype) -> Counted:
    """Run every network once on ``meta`` at the request's sizes.

    Args:
        networks: On ``meta``, in ``dtype``.
        work: The request's sizes.
        dtype: What the networks compute in.
    """
    model, autoencoder = networks.model, networks.autoencoder
    strides = autoencoder.strides
    grid = (
        strides.latent_frames(work.chunk_frames),
        work.size.height // strides.space,
        work.size.width // strides.space,
    )
    with torch.device("meta"):
        video = torch.empty(1, 3, work.chunk_frames, work.size.height, work.size.width)
        with counted() as live:
            latents = autoencoder.encode(video)
        encode_live = live.peak
        noise = torch.empty(1, autoencoder.latent_channels, *grid)
        with counted() as live:
            autoencoder.decode(noise)
        decode_live = live.peak
        denoise_live = _count_denoise(networks, work, grid, latents.shape[1], dtype)
        tiled = _count_tiles(autoencoder, work, strides)
    blocks = _blocks(model)
    frames = work.num_frames * work.size.height * work.size.width * 3
    return Counted(
        base_bytes=parameter_bytes(model.transformer),
        branch_bytes=parameter_bytes(model) - parameter_bytes(model.transformer),
        largest_block_bytes=max((parameter_bytes(block) for block in blocks), default=0),
        block_bytes=parameter_bytes(*blocks),
        autoencoder_bytes=parameter_bytes(autoencoder),  # type: ignore[arg-type]  # a module too
        text_encoder_bytes=TEXT_ENCODER_BYTES[networks.family],
        denoise_live=denoise_live,
        encode_live=encode_live,
        decode_live=decode_live,
        encode_tiled=tiled[0],
        decode_tiled=tiled[1],
        # The clip, every control's picture, the maps (float), and the frames made so far.
        frame_bytes=frames * (2 + work.num_controls)
        + work.num_controls * 4 * work.num_frames * work.size.height * work.size.width,
        element_size=dtype.itemsize,
        num_networks=1 + len(model.branches),
    )


def plan(
    found: Counted,
    options: MemoryOptions,
    *,
    on_gpu: bool,
    with_text_encoder: bool = True,
    process_bytes: int = 0,
) -> MemoryPlan:
    """The peak of every stage under a set of options.

    Args:
        found: From :func:`count`.
        options: How to fit.
        on_gpu: The peak of the card; otherwise of the process on the host.
        with_text_encoder: False with a cache of encoded prompts.
        process_bytes: What the process takes before it loads anything; see
            :func:`process_bytes`. On a GPU the context's.
    """
    slack = ALLOCATOR_SLACK if on_gpu else CPU_SLACK
    frames = 0 if on_gpu else found.frame_bytes
    networks = found.base_bytes + found.branch_bytes
    smaller = (
        found.element_size if options.fp8 else 1
    )  # blocks are kept in eight bits, the rest as it computes
    networks -= found.block_bytes - found.block_bytes // smaller
    if options.offload == "stream" or (options.offload == "group" and on_gpu):
        networks -= found.block_bytes // smaller
        # Streamed: each network keeps two blocks, and the read bytes of one on their way.
        each = 3 * found.num_networks if options.offload == "stream" else 2
        networks += each * found.largest_block_bytes // smaller
    text = found.text_encoder_bytes if with_text_encoder else 0
    # Nothing is moved away between stages: what is loaded stays.
    resident = networks + found.autoencoder_bytes + text
    tile = options.tile
    live = {
        "text": 0,
        "encode": found.encode_tiled if tile else found.encode_live,
        "denoise": found.denoise_live,
        "decode": found.decode_tiled if tile else found.decode_live,
    }
    # Weights are read as they are stored and cast on the host, one network after the other.
    loading = found.base_bytes + (found.block_bytes // smaller if options.fp8 else 0)
    load = Stage(
        name="load",
        weights=networks if on_gpu or options.offload == "stream" else max(loading, networks),
        live=0,
        frames=0,
        process=process_bytes,
    )
    later = (
        Stage(
            name=name,
            weights=resident,
            live=int(slack * value),
            frames=frames,
            process=process_bytes,
        )
        for name, value in live.items()
    )
    return MemoryPlan(options=options, stages=(load, *later), has_text_encoder=with_text_encoder)


# The ways to fit, from the fastest to the smallest; the last column of the printed table.
WAYS: tuple[tuple[str, MemoryOptions, bool], ...] = (
    ("nothing", MemoryOptions(), True),
    ("prompt_cache", MemoryOptions(), False),
    ("prompt_cache tile", MemoryOptions(tile=True), False),
    ("prompt_cache tile fp8", MemoryOptions(tile=True, fp8=True), False),
    ("prompt_cache tile offload=group", MemoryOptions(tile=True, offload="group"), False),
    ("prompt_cache tile offload=stream", MemoryOptions(tile=True, offload="stream"), False),
    (
        "prompt_cache tile fp8 offload=group",
        MemoryOptions(tile=True, fp8=True, offload="group"),
        False,
    ),
)


def ways(networks: Networks, *, on_gpu: bool) -> tuple[tuple[str, MemoryOptions, bool], ...]:
    """The ways to fit that these networks have; the embedded model needs none."""
    if networks.family == "embedded":
        return WAYS[:1]
    # On a processor, blocks on the host are where they were.
    return tuple(way for way in WAYS if on_gpu or way[1].offload != "group")


def process_bytes(family: str) -> int:
    """Peak resident bytes of a process that has imported what generating needs, measured now.

    Args:
        family: Of the networks; the embedded model does without diffusers.
    """
    # Beside the embedded model's few megabytes, what loading it brings in is most of it.
    first = (
        "cosmos_transfer.model.checkpoint_parts.load_checkpoint('embedded', controls=()); "
        if family == "embedded"
        else "import cosmos_transfer.model.diffusers_compat; "
    )
    code = (
        f"import cosmos_transfer.pipeline, cosmos_transfer.model.checkpoint_parts; {first}"
        # What the first picture and the first operations bring in, whatever the model.
        "import cv2, numpy as np, torch, torch.nn.functional as F; "
        "cv2.Canny(np.zeros((64, 64), np.uint8), 100, 200); "
        "x = torch.zeros(1, 8, 32, 32); F.conv2d(x, torch.zeros(8, 8, 3, 3)); x @ x; "
        "from cosmos_transfer.planning.memory import peak_resident_bytes; "
        "print(peak_resident_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(
            explain(
                "plan memory",
                expected="a process that imports this package",
                got=done.stderr.strip().splitlines()[-1] if done.stderr else "none",
                do="Check the installation.",
            )
        )
    return int(done.stdout.split()[-1])


def peak_resident_bytes() -> int:
    """The most memory this process has had resident so far."""
    status = Path("/proc/self/status")
    if status.is_file():
        # getrusage would also count what the parent had when it started this process.
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def table(plans: Sequence[tuple[str, MemoryPlan]], cards: Sequence[int] = CARDS_GB) -> str:
    """The plans as a table for a person."""
    names = [stage.name for stage in plans[0][1].stages]
    width = max(len(way) for way, _ in plans)
    head = "  ".join(f"{name:>8}" for name in (*names, "peak"))
    lines = [f"{'GB':<{width}}  {head}  fits on"]
    for way, each in plans:
        numbers = [*(stage.total for stage in each.stages), each.peak]
        row = "  ".join(f"{value / 1e9:8.2f}" for value in numbers)
        fits = [card for card in cards if each.peak <= card * 1e9]
        lines.append(f"{way:<{width}}  {row}  {'from ' + str(fits[0]) + ' GB' if fits else 'none'}")
    return "\n".join(lines)


def _count_denoise(
    networks: Networks, work: Workload, grid: tuple[int, ...], channels: int, dtype: torch.dtype
) -> int:
    model = networks.model
    tokens = math.prod(s // p for s, p in zip(grid, model.patch, strict=True))
    names = list(model.branches)[: work.num_controls]
    control_channels = _control_channels(networks, channels)
    controls = {name: torch.empty(1, control_channels, *grid, dtype=dtype) for name in names}
    weights = {name: torch.empty(1, tokens) for name in names}
    text = torch.empty(1, networks.text_tokens, networks.text_width, dtype=dtype)
    held = sum(each.numel() * each.element_size() for each in controls.values())
    with counted() as live:
        model(torch.empty(1, channels, *grid), torch.empty(1), text, controls, weights)
    # The sampler's own latents: state, the last outputs of two passes, and their combination.
    sampler = 6 * 4 * channels * math.prod(grid)
    return live.peak + held + sampler


def _control_channels(networks: Networks, channels: int) -> int:
    for branch in networks.model.branches.values():
        settings: Any = getattr(branch, "settings", None)
        if settings is not None:
            return int(settings.control_channels)
    return channels


def _count_tiles(autoencoder: Any, work: Workload, strides: Strides) -> tuple[int, int]:
    """One tile's peak, and the tiles and the rows that are held until they are blended."""
    side = Size(min(TILE, work.size.height), min(TILE, work.size.width))
    tile = torch.empty(1, 3, work.chunk_frames, side.height, side.width)
    with counted() as live:
        autoencoder.encode(tile)
    encode = live.peak
    grid = (
        strides.latent_frames(work.chunk_frames),
        side.height // strides.space,
        side.width // strides.space,
    )
    with counted() as live:
        autoencoder.decode(torch.empty(1, autoencoder.latent_channels, *grid))
    element = next(autoencoder.parameters()).element_size()
    video = 3 * work.chunk_frames * work.size.height * work.size.width * element
    held = int(video * ((TILE / TILE_STEP) ** 2 + 2))
    # The clip itself stays while its tiles are encoded; the whole clip comes out in float32.
    whole = 3 * 4 * work.chunk_frames * work.size.height * work.size.width
    return encode + whole, live.peak + held + whole


def _blocks(model: ControlledModel) -> list[nn.Module]:
    found: list[nn.Module] = []
    for network, part in (
        (model.transformer, "transformer_blocks"),
        *((branch, "control_blocks") for branch in model.branches.values()),
    ):
        found += list(getattr(network, part, ()))
    return found
