"""Fit a cloud: train a field on a volume's densities and on light that paths bring there.

Points are drawn once, half of them anywhere, half where there is density; each gets its density
and the mean of a few paths that start there in random directions, times the albedo. The paths are
noisy and right on average, and so is what the field learns from all of them.

PSNR is against a path-traced picture of the same volume, both clipped and in sRGB.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.backends.registry import AUTO
from ngpc.config import (
    AdamConfig,
    EncodingConfig,
    GridConfig,
    MlpConfig,
    encoding_to_json,
    growth_to_reach,
    network_to_json,
)
from ngpc.data.volumes import Volume
from ngpc.fields.volume import VolumeField
from ngpc.geometry.cameras import Intrinsics
from ngpc.rendering.path_tracing import ALBEDO, lookup, random_directions, trace_paths
from ngpc.rendering.views import UNIT_BOX, pixel_rays, to_srgb
from ngpc.tasks.training import derived_generator, run_steps

INIT_STREAM, POOL_STREAM, STEP_STREAM, PICTURE_STREAM = 0, 1, 2, 3
PATHS_AT_ONCE = 2**16
EMPTY = 1e-3  # share of the largest density below which a cell is left out of pictures


@dataclass(slots=True, kw_only=True)
class VolumeFitConfig:
    """How a volume becomes a field. The sizes are meant for a CPU."""

    encoding: EncodingConfig = field(
        default_factory=lambda: GridConfig(
            num_levels=5,
            features_per_level=4,
            log2_table_size=15,
            base_resolution=6,
            per_level_scale=growth_to_reach(64, base_resolution=6, num_levels=5),
        )
    )
    network: MlpConfig = field(default_factory=lambda: MlpConfig(width=64, num_hidden_layers=2))
    optimizer: AdamConfig = field(
        default_factory=lambda: AdamConfig(
            learning_rate=5e-3, beta2=0.99, epsilon=1e-15, l2_reg=1e-6
        )
    )
    occupancy_resolution: int = 32
    num_steps: int = 400
    batch_size: int = 8192
    pool_size: int = 2**16
    paths_per_point: int = 8
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFit:
    """A trained field and how it was trained."""

    field: VolumeField
    config: VolumeFitConfig
    losses: tuple[float, ...]
    duration_s: float
    pool_duration_s: float
    """Of following paths; not part of ``duration_s``."""


def density_grid(volume: Volume, device: str = "cpu") -> Float[Tensor, "x y z"]:
    """Optical depth per side of the cube, on the volume's grid."""
    return torch.from_numpy(volume.density * np.float32(volume.optical_depth)).to(device)


@torch.no_grad()
def volume_pool(
    density: Float[Tensor, "x y z"], *, num_points: int, paths_per_point: int, seed: int
) -> tuple[Float[Tensor, "p 3"], Float[Tensor, "p 4"]]:
    """Points, and what the field is to say there: density as a share of the largest, radiance."""
    draw = derived_generator(seed, POOL_STREAM)
    device, largest = density.device, float(density.max())
    points = torch.rand(num_points - num_points // 2, 3, generator=draw).to(device)
    dense: list[Tensor] = []
    while sum(len(part) for part in dense) < num_points // 2:
        tries = torch.rand(num_points, 3, generator=draw).to(device)
        chance = torch.rand(num_points, generator=draw).to(device)
        # More often where it is dense, but in thin places too: those are most of what one sees.
        dense.append(tries[lookup(density, tries) / largest > chance**2])
    points = torch.cat([points, torch.cat(dense)[: num_points // 2]])
    total = torch.zeros_like(points)
    for _ in range(paths_per_point):
        headings = random_directions(len(points), draw).to(device)
        for start in range(0, len(points), PATHS_AT_ONCE):
            chunk = slice(start, start + PATHS_AT_ONCE)
            total[chunk] += trace_paths(density, points[chunk], headings[chunk], generator=draw)
    scattered = ALBEDO * total / paths_per_point
    share = lookup(density, points)[:, None] / largest
    return points, torch.cat([share, scattered], dim=1)


def fit_volume(
    volume: Volume,
    config: VolumeFitConfig | None = None,
    *,
    device: str = "cpu",
    backend: str = AUTO,
    on_step: Callable[[int, float], None] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 200,
) -> VolumeFit:
    """Train a volume field with Adam. The same seed gives the same field.

    Args:
        volume: What to fit.
        config: How; None for the defaults.
        device: Where, as torch names it.
        backend: A name out of ``ngpc backends``, or ``auto``.
        on_step: Called after each step with its index and its mean squared error.
        checkpoint: Where the run is kept; a file that is there is gone on with.
        checkpoint_every: Steps between two writings of it.

    Raises:
        ConfigError: training left the finite numbers.
        CheckpointError: the checkpoint is of a run with other settings.
    """
    config = config or VolumeFitConfig()
    started = time.perf_counter()
    density = density_grid(volume, device)
    points, targets = volume_pool(
        density,
        num_points=config.pool_size,
        paths_per_point=config.paths_per_point,
        seed=config.seed,
    )
    pool_duration_s = time.perf_counter() - started
    started = time.perf_counter()
    net = VolumeField(
        optical_depth=float(density.max()),
        encoding=config.encoding,
        network=config.network,
        occupancy_resolution=config.occupancy_resolution,
        generator=derived_generator(config.seed, INIT_STREAM),
        backend=backend,
    ).to(device)

    def step_loss(step_index: int) -> tuple[Tensor, float]:
        draw = derived_generator(config.seed, STEP_STREAM, step_index)
        index = torch.randint(len(points), (config.batch_size,), generator=draw)
        loss = torch.nn.functional.mse_loss(net(points[index]), targets[index])
        return loss, loss.item()

    losses = run_steps(
        net,
        step_loss,
        where="fit_volume",
        adam=config.optimizer,
        num_steps=config.num_steps,
        settings=volume_settings(config),
        on_step=on_step,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    _mark_empty_cells(net, density)
    return VolumeFit(
        field=net,
        config=config,
        losses=losses,
        duration_s=time.perf_counter() - started,
        pool_duration_s=pool_duration_s,
    )


def volume_settings(config: VolumeFitConfig) -> dict[str, object]:
    """The settings as JSON takes them."""
    return {
        **asdict(config),
        "encoding": encoding_to_json(config.encoding),
        "network": network_to_json(config.network),
    }


def path_traced_picture(
    volume: Volume,
    intrinsics: Intrinsics,
    camera_to_world: Float[np.ndarray, "4 4"],
    *,
    paths_per_pixel: int,
    seed: int = 0,
) -> Float[np.ndarray, "h w 3"]:
    """The volume itself, without a field: the mean of that many paths a pixel, in sRGB."""
    density = density_grid(volume)
    draw = derived_generator(seed, PICTURE_STREAM)
    rays = pixel_rays(UNIT_BOX, intrinsics, camera_to_world, density.device)
    total = torch.zeros_like(rays.origins)
    for _ in range(paths_per_pixel):
        total += trace_paths(density, rays.origins, rays.directions, generator=draw)
    size = (intrinsics.height, intrinsics.width, 3)
    return to_srgb((total / paths_per_pixel).numpy()).reshape(size)


@torch.no_grad()
def _mark_empty_cells(net: VolumeField, density: Float[Tensor, "x y z"]) -> None:
    """Cells with no density near them are left out of pictures."""
    grid = net.occupancy
    reach = torch.nn.functional.max_pool3d(density[None, None], 3, stride=1, padding=1)
    if min(density.shape) > grid.resolution:
        reach = torch.nn.functional.adaptive_max_pool3d(reach, grid.resolution)
    else:
        reach = torch.nn.functional.interpolate(reach, size=(grid.resolution,) * 3)
    reach = reach.reshape(-1)
    grid.density.copy_(reach)
    grid.is_occupied.copy_(reach > EMPTY * density.max())
