"""Fit a signed distance: train a field on points on, near and far from a mesh.

Points are drawn once, half of them on the surface, three eighths near it, one eighth anywhere in
the box, and their distances computed once; steps draw from them. The error is relative, as in
instant-ngp: what is near the surface must be right, what is far away need not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.spatial import cKDTree

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
from ngpc.data.meshes import Mesh
from ngpc.data.solids import mesh_of_values
from ngpc.fields.distance import DistanceField
from ngpc.geometry.boxes import cube_around
from ngpc.geometry.triangles import Surface, cells_inside, sample_triangles
from ngpc.tasks.training import derived_generator, derived_seed, run_steps

logger = logging.getLogger(__name__)

INIT_STREAM, POOL_STREAM, STEP_STREAM = 0, 1, 2
MARGIN = 0.1  # of the box around the mesh, a share of its size
NEAR_STD = 1.0 / 100.0  # of the points near the surface, in sides of the box
SMALLEST = 0.01  # distance below which the error is no longer relative


@dataclass(slots=True, kw_only=True)
class SdfFitConfig:
    """How a mesh becomes a field. The sizes are meant for a CPU."""

    encoding: EncodingConfig = field(
        default_factory=lambda: GridConfig(
            num_levels=6,
            features_per_level=4,
            log2_table_size=16,
            base_resolution=8,
            per_level_scale=growth_to_reach(160, base_resolution=8, num_levels=6),
        )
    )
    network: MlpConfig = field(default_factory=lambda: MlpConfig(width=64, num_hidden_layers=2))
    optimizer: AdamConfig = field(
        default_factory=lambda: AdamConfig(
            learning_rate=5e-3, beta2=0.99, epsilon=1e-15, l2_reg=1e-6
        )
    )
    num_steps: int = 400
    batch_size: int = 8192
    pool_size: int = 2**18  # points whose distance is computed
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SdfFit:
    """A trained field and how it was trained."""

    field: DistanceField
    config: SdfFitConfig
    losses: tuple[float, ...]
    duration_s: float
    pool_duration_s: float
    """Of drawing points and computing their distances; not part of ``duration_s``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SdfScores:
    """How near a field is to its mesh."""

    iou: float
    """Of the cells inside, on a grid over the field's box."""
    chamfer: float
    """Mean distance between the two surfaces, both ways added, in sides of the box."""
    normal_error_deg: float
    """Median angle between the field's normals and the mesh's, on the mesh."""


def distance_pool(
    mesh: Mesh, surface: Surface, num_points: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "p 3"], Float[np.ndarray, " p"]]:
    """Points of the unit cube and their signed distances; ``surface`` is the mesh in that cube."""
    on_surface, _ = sample_triangles(surface.corners, num_points // 2, rng)
    near, _ = sample_triangles(surface.corners, num_points * 3 // 8, rng)
    near = near + rng.logistic(scale=NEAR_STD * np.sqrt(3.0) / np.pi, size=near.shape)
    anywhere = rng.random((num_points - len(on_surface) - len(near), 3))
    away = np.concatenate([np.clip(near, 0.0, 1.0), anywhere])
    distances = surface.signed_distance(away, is_watertight=mesh.is_watertight)
    points = np.concatenate([on_surface, away])
    return points, np.concatenate([np.zeros(len(on_surface)), distances])


def fit_sdf(
    mesh: Mesh,
    config: SdfFitConfig | None = None,
    *,
    device: str = "cpu",
    backend: str = AUTO,
    on_step: Callable[[int, float], None] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 200,
) -> SdfFit:
    """Train a distance field on a mesh with Adam. The same seed gives the same field.

    Args:
        mesh: What to fit.
        config: How; None for the defaults.
        device: Where, as torch names it.
        backend: A name out of ``ngpc backends``, or ``auto``.
        on_step: Called after each step with its index and its error.
        checkpoint: Where the run is kept; a file that is there is gone on with.
        checkpoint_every: Steps between two writings of it.

    Raises:
        ConfigError: training left the finite numbers.
        CheckpointError: the checkpoint is of a run with other settings.
    """
    config = config or SdfFitConfig()
    box = cube_around(mesh.vertices, margin=MARGIN)
    started = time.perf_counter()
    rng = np.random.default_rng(derived_seed(config.seed, POOL_STREAM))
    surface = Surface(box.to_unit(mesh.corners))
    points, distances = distance_pool(mesh, surface, config.pool_size, rng)
    pool = torch.from_numpy(points).to(device, torch.float32)
    targets = torch.from_numpy(distances).to(device, torch.float32)
    pool_duration_s = time.perf_counter() - started
    started = time.perf_counter()
    net = DistanceField(
        box=box,
        encoding=config.encoding,
        network=config.network,
        generator=derived_generator(config.seed, INIT_STREAM),
        backend=backend,
    ).to(device)

    def step_loss(step_index: int) -> tuple[torch.Tensor, float]:
        draw = derived_generator(config.seed, STEP_STREAM, step_index)
        index = torch.randint(len(pool), (config.batch_size,), generator=draw)
        target = targets[index]
        predicted = net(pool[index])
        loss = ((predicted - target).abs() / (target.abs() + SMALLEST)).mean()
        return loss, loss.item()

    losses = run_steps(
        net,
        step_loss,
        where="fit_sdf",
        adam=config.optimizer,
        num_steps=config.num_steps,
        settings=sdf_settings(config),
        on_step=on_step,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    return SdfFit(
        field=net,
        config=config,
        losses=losses,
        duration_s=time.perf_counter() - started,
        pool_duration_s=pool_duration_s,
    )


def sdf_settings(config: SdfFitConfig) -> dict[str, object]:
    """The settings as JSON takes them."""
    return {
        **asdict(config),
        "encoding": encoding_to_json(config.encoding),
        "network": network_to_json(config.network),
    }


@torch.no_grad()
def field_values(
    net: DistanceField, axis: Float[np.ndarray, " r"], *, chunk_size: int = 2**16
) -> Float[np.ndarray, "r r r"]:
    """Distances on a grid of the unit cube, indexed x y z."""
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    device = next(net.parameters()).device
    values = [
        net(torch.from_numpy(chunk).to(device, torch.float32)).cpu().numpy()
        for chunk in np.array_split(grid, max(1, len(grid) // chunk_size))
    ]
    return np.concatenate(values).reshape((len(axis),) * 3)


def extract_mesh(net: DistanceField, *, resolution: int = 128) -> Mesh:
    """The surface of a field by marching cubes, in world units.

    Raises:
        ConfigError: the field has no surface.
    """
    values = field_values(net, np.linspace(0.0, 1.0, resolution + 1))
    mesh = mesh_of_values(values, low=0.0, high=1.0, where="distance field")
    return Mesh(vertices=net.box.to_world(mesh.vertices), faces=mesh.faces)


def cells_of_mesh(mesh: Mesh, surface: Surface, resolution: int) -> Bool[np.ndarray, "r r r"]:
    """Which cells a mesh encloses: by crossings where it is closed, else by winding number."""
    if mesh.is_watertight:
        return cells_inside(surface.corners, resolution)
    axis = (np.arange(resolution) + 0.5) / resolution
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    return (surface.winding_number(grid) > 0.5).reshape((resolution,) * 3)


def score_sdf(
    net: DistanceField,
    mesh: Mesh,
    *,
    resolution: int = 128,
    num_points: int = 20_000,
    seed: int = 0,
) -> SdfScores:
    """Compare a field with the mesh it was trained on."""
    surface = Surface(net.box.to_unit(mesh.corners))
    truth = cells_of_mesh(mesh, surface, resolution)
    found = field_values(net, (np.arange(resolution) + 0.5) / resolution) < 0.0
    rng = np.random.default_rng(seed)
    points, faces = sample_triangles(surface.corners, num_points, rng)
    device = next(net.parameters()).device
    with torch.no_grad():
        normals = net.normals(torch.from_numpy(points).to(device, torch.float32)).cpu().numpy()
    cosines = np.einsum("ij,ij->i", normals, surface.normals(faces))
    extracted = extract_mesh(net, resolution=resolution)
    others, _ = sample_triangles(net.box.to_unit(extracted.corners), num_points, rng)
    there = cKDTree(others).query(points)[0].mean()
    back = cKDTree(points).query(others)[0].mean()
    return SdfScores(
        iou=float((truth & found).sum() / (truth | found).sum()),
        chamfer=float(there + back),
        normal_error_deg=float(np.degrees(np.arccos(np.clip(np.median(cosines), -1.0, 1.0)))),
    )
