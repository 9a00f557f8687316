"""Pictures of a radiance field: colour, opacity, depth, normals and ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ngpc.fields.radiance import RadianceField
from ngpc.geometry.cameras import Intrinsics
from ngpc.rendering.compositing import composite
from ngpc.rendering.marching import march
from ngpc.rendering.views import RenderedView, pixel_rays

STEP = 1.0 / 160.0  # length of a sample's stretch, in sides of the box


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedRays:
    """What rays see; tensors of one row a ray."""

    rgb: Float[Tensor, "r 3"]
    """Premultiplied by opacity: over black."""
    opacity: Float[Tensor, " r"]
    median_distance: Float[Tensor, " r"]
    """Where half of the light is lost, in sides of the box; 0 where more than half goes through."""
    class_mass: Float[Tensor, "r _c"]
    """Opacity shared among the labels."""


def render_rays(
    field: RadianceField,
    origins: Float[Tensor, "r 3"],
    directions: Float[Tensor, "r 3"],
    *,
    jitter: Float[Tensor, " r"] | None = None,
    step: float = STEP,
) -> tuple[RenderedRays, int]:
    """What rays through the unit cube see, and how many samples that took."""
    samples = march(field.occupancy, origins, directions, step=step, jitter=jitter)
    latent = field.latent(samples.positions)
    weights = composite(samples, field.density_of(latent))
    rgb = field.colour_of(latent, directions[samples.ray_index])
    classes = latent[:, :0]
    if field.class_net is not None:
        classes = field.class_probabilities_of(latent)
    seen = RenderedRays(
        rgb=weights.sum(rgb),
        opacity=weights.opacity,
        median_distance=weights.median_distance(),
        class_mass=weights.sum(classes),
    )
    return seen, len(samples)


@torch.no_grad()
def render_view(
    field: RadianceField,
    intrinsics: Intrinsics,
    camera_to_world: Float[np.ndarray, "4 4"],
    *,
    background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    chunk_size: int = 4096,
    step: float = STEP,
) -> RenderedView:
    """Render one picture.

    Args:
        field: What to show.
        intrinsics: Of the camera, and the size of the picture.
        camera_to_world: Of the camera, in world units.
        background: sRGB behind the scene.
        chunk_size: Rays at a time; bounds the memory, not the result.
        step: Length of a sample's stretch, in sides of the box.
    """
    device = field.occupancy.density.device
    rays = pixel_rays(field.box, intrinsics, camera_to_world, device)
    origins, directions = rays.origins, rays.directions
    parts: list[tuple[Tensor, ...]] = []
    for start in range(0, len(origins), chunk_size):
        chunk = slice(start, start + chunk_size)
        seen, _ = render_rays(field, origins[chunk], directions[chunk], step=step)
        has_depth = seen.median_distance > 0.0
        where = origins[chunk] + seen.median_distance[:, None] * directions[chunk]
        normals = torch.zeros_like(where)
        normals[has_depth] = field.normals(where[has_depth])
        ids = torch.zeros(len(where), dtype=torch.int64, device=device)
        if field.labels:
            known = torch.tensor(list(field.labels), device=device)
            ids = torch.where(has_depth, known[seen.class_mass.argmax(dim=1)], 0)
        rgb = seen.rgb + (1.0 - seen.opacity)[:, None] * seen.rgb.new_tensor(background)
        parts.append((rgb, seen.opacity, seen.median_distance, normals, ids))
    rgb, opacity, distance, normals, ids = (
        torch.cat(each).cpu() for each in zip(*parts, strict=True)
    )
    size = (intrinsics.height, intrinsics.width)
    depth = distance.numpy() * rays.depth_of_distance
    return RenderedView(
        rgb_srgb=rgb.clamp(0.0, 1.0).numpy().reshape(*size, 3),
        opacity=opacity.numpy().reshape(size),
        depth=depth.astype(np.float32).reshape(size),
        normals=normals.numpy().reshape(*size, 3),
        ids=ids.numpy().reshape(size),
    )
