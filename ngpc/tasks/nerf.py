"""Fit a scene: train a radiance field on posed pictures.

Every step draws rays from all training pixels and colours both the picture's transparent parts and
the field's with the same random background, so that only what is opaque in the pictures becomes
matter. The number of rays follows the number of samples they take: a step costs the same whether
the scene is still full or already empty.

PSNR and SSIM are over held-out pictures of the size they have, on sRGB in [0, 1] over a black
background, the field rendered with one ray through the centre of every pixel.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from skimage.metrics import structural_similarity
from torch import Tensor
from torch.nn import functional

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
from ngpc.data.posed_images import LoadedViews, PosedImages, load_views
from ngpc.fields.radiance import RadianceField, default_networks
from ngpc.geometry.cameras import camera_rays
from ngpc.rendering.radiance import STEP, render_rays, render_view
from ngpc.tasks.image import psnr
from ngpc.tasks.training import derived_generator, run_steps

logger = logging.getLogger(__name__)

INIT_STREAM, STEP_STREAM, OCCUPANCY_STREAM = 0, 1, 2
HUBER = 0.1  # error of a channel from which it counts linearly
CLASS_WEIGHT = 0.02  # of the classes' error beside the colours'
OCCUPANCY_EVERY = 64  # steps between updates, after the first ones
EARLY_UPDATES = (16, 32, 48)  # steps after which all cells are looked at, like every fourth update
DECAY = 0.8  # of a cell's density at every update


@dataclass(slots=True, kw_only=True)
class NerfFitConfig:
    """How a scene becomes a field. The sizes are meant for a CPU and small pictures."""

    encoding: EncodingConfig = field(
        default_factory=lambda: GridConfig(
            num_levels=8,
            features_per_level=4,
            log2_table_size=16,
            base_resolution=16,
            per_level_scale=growth_to_reach(256, base_resolution=16, num_levels=8),
        )
    )
    density_network: MlpConfig = field(default_factory=lambda: default_networks()[0])
    colour_network: MlpConfig = field(default_factory=lambda: default_networks()[1])
    optimizer: AdamConfig = field(
        default_factory=lambda: AdamConfig(
            learning_rate=1e-2, beta2=0.99, epsilon=1e-15, l2_reg=1e-6
        )
    )
    occupancy_resolution: int = 64
    num_steps: int = 1000
    samples_per_step: int = 16384  # along all rays of a step, about
    max_rays: int = 4096
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NerfFit:
    """A trained field and how it was trained."""

    field: RadianceField
    config: NerfFitConfig
    losses: tuple[float, ...]
    """Mean squared error of each step's colours."""
    duration_s: float
    num_samples: int
    """Along all rays of all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NerfScores:
    """How well held-out views are rendered; means over views."""

    psnr_db: float
    ssim: float
    depth_error: float | None
    """Median absolute difference in world units, where both have a depth; None without truth."""
    id_accuracy: float | None
    """Share of pixels with the right id; None without truth."""


def fit_nerf(
    posed: PosedImages,
    config: NerfFitConfig | None = None,
    *,
    device: str = "cpu",
    backend: str = AUTO,
    on_step: Callable[[int, float], None] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 200,
) -> NerfFit:
    """Train a radiance field on posed pictures with Adam. The same seed gives the same field.

    Args:
        posed: Pictures and cameras; ids are learned where every picture has a segmentation.
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
    config = config or NerfFitConfig()
    views = load_views(posed)
    rays = _TrainingRays(posed, views, device)
    net = RadianceField(
        box=posed.box,
        encoding=config.encoding,
        density_network=config.density_network,
        colour_network=config.colour_network,
        occupancy_resolution=config.occupancy_resolution,
        labels=posed.labels if views.ids is not None else {},
        view=view_of(posed),
        generator=derived_generator(config.seed, INIT_STREAM),
        backend=backend,
    ).to(device)
    num_rays = torch.tensor(_first_num_rays(config))
    total = 0

    def step_loss(step_index: int) -> tuple[Tensor, float]:
        nonlocal total
        rays_now = int(num_rays)
        loss, squared, num_samples = _step_loss(net, rays, config, step_index, rays_now)
        total += num_samples
        per_ray = max(1.0, num_samples / rays_now)
        num_rays.fill_(min(config.max_rays, max(1, int(config.samples_per_step / per_ray))))
        return loss, squared

    started = time.perf_counter()
    losses = run_steps(
        net,
        step_loss,
        where="fit_nerf",
        adam=config.optimizer,
        num_steps=config.num_steps,
        settings=nerf_settings(config),
        after_step=lambda step_index: _update_occupancy(net, config, step_index + 1),
        extra={"num_rays": num_rays},
        on_step=on_step,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    return NerfFit(
        field=net,
        config=config,
        losses=losses,
        duration_s=time.perf_counter() - started,
        num_samples=total,
    )


def nerf_settings(config: NerfFitConfig) -> dict[str, object]:
    """The settings as JSON takes them."""
    return {
        **asdict(config),
        "encoding": encoding_to_json(config.encoding),
        "density_network": network_to_json(config.density_network),
        "colour_network": network_to_json(config.colour_network),
    }


def view_of(posed: PosedImages) -> dict[str, object]:
    """How the pictures were taken: the camera, and where cameras stood around what they saw."""
    camera = posed.views[0].intrinsics
    places = np.stack([view.camera_to_world[:3, 3] for view in posed.views])
    axes = np.stack([view.camera_to_world[:3, 2] for view in posed.views])
    target = _meeting_point(
        places, axes, fallback=np.asarray(posed.box.corner) + posed.box.side / 2
    )
    away = places - target
    radius = np.linalg.norm(away, axis=1)
    elevation = np.degrees(np.arcsin(np.clip(away[:, 2] / np.maximum(radius, 1e-9), -1.0, 1.0)))
    return {
        "height": camera.height,
        "width": camera.width,
        "focal_x": camera.focal_x,
        "focal_y": camera.focal_y,
        "centre_x": camera.centre_x,
        "centre_y": camera.centre_y,
        "target": [round(float(value), 6) for value in target],
        "radius": round(float(np.median(radius)), 6),
        "elevation_deg": round(float(np.median(elevation)), 3),
    }


def score_nerf(
    net: RadianceField, posed: PosedImages, *, max_views: int | None = None
) -> NerfScores:
    """Render views that were not trained on and compare them with their pictures."""
    views = load_views(posed)
    chosen = range(len(posed.views))[:max_views]
    psnrs, ssims, depths, hits = [], [], [], []
    for index in chosen:
        view = posed.views[index]
        seen = render_view(net, view.intrinsics, view.camera_to_world)
        rgba = views.rgba_srgb[index]
        truth = rgba[:, :, :3] * rgba[:, :, 3:]
        psnrs.append(psnr(seen.rgb_srgb, truth))
        window = min(7, (min(truth.shape[:2]) - 1) // 2 * 2 + 1)
        ssims.append(
            structural_similarity(
                seen.rgb_srgb, truth, channel_axis=2, data_range=1.0, win_size=window
            )
        )
        if views.depth is not None:
            both = (views.depth[index] > 0) & (seen.depth > 0)
            depths.append(np.abs(views.depth[index] - seen.depth)[both])
        if views.ids is not None and net.labels:
            hits.append(float((views.ids[index] == seen.ids).mean()))
    return NerfScores(
        psnr_db=float(np.mean(psnrs)),
        ssim=float(np.mean(ssims)),
        depth_error=float(np.median(np.concatenate(depths))) if depths else None,
        id_accuracy=float(np.mean(hits)) if hits else None,
    )


class _TrainingRays:
    """All pixels of all views, ready to be drawn from."""

    def __init__(self, posed: PosedImages, views: LoadedViews, device: str) -> None:
        origins, directions = [], []
        for view in posed.views:
            rays = camera_rays(view.intrinsics, view.camera_to_world)
            origins.append(posed.box.to_unit(rays.origins[:1]).astype(np.float32))
            directions.append(rays.directions.astype(np.float32))
        self.device = device
        self.pixels_per_view = len(directions[0])
        self.origins = torch.from_numpy(np.concatenate(origins))
        self.directions = torch.from_numpy(np.concatenate(directions))
        self.rgba = torch.from_numpy(views.rgba_srgb.reshape(-1, 4))
        self.class_index = None
        if views.ids is not None and posed.labels:
            # Column of each id's probability; the last column stands for every other id.
            columns = np.full(max(*posed.labels, int(views.ids.max())) + 1, len(posed.labels))
            columns[list(posed.labels)] = np.arange(len(posed.labels))
            self.class_index = torch.from_numpy(columns[views.ids.reshape(-1)])

    def draw(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Origins, directions, colours and class columns of pixels."""
        view = torch.div(index, self.pixels_per_view, rounding_mode="floor")
        classes = None if self.class_index is None else self.class_index[index].to(self.device)
        return (
            self.origins[view].to(self.device),
            self.directions[index].to(self.device),
            self.rgba[index].to(self.device),
            classes,
        )


def _first_num_rays(config: NerfFitConfig) -> int:
    """As many as fill a step while every cell counts as occupied."""
    return max(1, min(config.max_rays, int(config.samples_per_step * STEP)))


def _step_loss(
    net: RadianceField,
    rays: _TrainingRays,
    config: NerfFitConfig,
    step_index: int,
    num_rays: int,
) -> tuple[Float[Tensor, ""], float, int]:
    """The loss, the mean squared error of colours, and the number of samples."""
    draw = derived_generator(config.seed, STEP_STREAM, step_index)
    index = torch.randint(len(rays.directions), (num_rays,), generator=draw)
    jitter = torch.rand(num_rays, generator=draw).to(rays.device)
    background = torch.rand(num_rays, 3, generator=draw).to(rays.device)
    origins, directions, rgba, classes = rays.draw(index)
    seen, num_samples = render_rays(net, origins, directions, jitter=jitter)
    alpha = rgba[:, 3:]
    target = rgba[:, :3] * alpha + background * (1.0 - alpha)
    found = seen.rgb + background * (1.0 - seen.opacity[:, None])
    loss = functional.huber_loss(found, target, delta=HUBER) / HUBER
    if classes is not None:
        # What no label takes is seen through: the probability of everything that has none.
        through = (1.0 - seen.opacity).clamp_min(0.0)[:, None]
        masses = torch.cat([seen.class_mass, through], dim=1)
        likely = masses.gather(1, classes[:, None]).clamp_min(1e-3)
        loss = loss - CLASS_WEIGHT * torch.log(likely).mean()
    squared = functional.mse_loss(found.detach(), target).item()
    return loss, squared, num_samples


@torch.no_grad()
def _update_occupancy(net: RadianceField, config: NerfFitConfig, step_index: int) -> None:
    """Look at all cells early and now and then, else at a quarter: occupied ones first."""
    is_early = step_index in EARLY_UPDATES
    if not is_early and step_index % OCCUPANCY_EVERY:
        return
    grid = net.occupancy
    device = grid.density.device
    draw = derived_generator(config.seed, OCCUPANCY_STREAM, step_index)
    number = grid.resolution**3
    if is_early or step_index % (4 * OCCUPANCY_EVERY) == 0:
        cells = torch.arange(number)
    else:
        occupied = torch.nonzero(grid.is_occupied.cpu())[:, 0]
        anywhere = torch.randint(number, (number // 16,), generator=draw)
        cells = torch.unique(torch.cat([occupied[: number // 4], anywhere]))
    jitter = torch.rand(len(cells), 3, generator=draw)
    density = [
        net.density(grid.positions_in(part.to(device), noise.to(device)))
        for part, noise in zip(cells.split(2**15), jitter.split(2**15), strict=True)
    ]
    grid.update(cells.to(device), torch.cat(density), decay=DECAY, step=STEP)
    logger.info("step %d: %.1f %% of the cells occupied", step_index, 100.0 * grid.share)


def _meeting_point(
    places: Float[np.ndarray, "n 3"],
    axes: Float[np.ndarray, "n 3"],
    *,
    fallback: Float[np.ndarray, "3"],
) -> Float[np.ndarray, "3"]:
    """The point nearest to all optical axes; ``fallback`` where they are parallel."""
    planes = np.eye(3) - axes[:, :, None] * axes[:, None, :]
    total = planes.sum(axis=0)
    if np.linalg.cond(total) > 1e6 or not math.isfinite(float(np.linalg.cond(total))):
        return fallback
    solved: Float[np.ndarray, "3"] = np.linalg.solve(total, np.einsum("nij,nj->i", planes, places))
    return solved
