"""One picture of a field, whatever the field, and how surfaces and clouds become one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ngpc.fields.distance import DistanceField
from ngpc.fields.volume import VolumeField
from ngpc.geometry.boxes import Box
from ngpc.geometry.cameras import Intrinsics, camera_rays
from ngpc.rendering.compositing import composite
from ngpc.rendering.marching import march
from ngpc.rendering.path_tracing import sky
from ngpc.rendering.sphere_tracing import shade, trace_spheres

UNIT_BOX = Box(corner=(0.0, 0.0, 0.0), side=1.0)
CLOUD_STEP = 1.0 / 96.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedView:
    """One picture of a field, in world units."""

    rgb_srgb: Float[np.ndarray, "h w 3"]
    opacity: Float[np.ndarray, "h w"]
    depth: Float[np.ndarray, "h w"]
    """Along the camera's axis; 0 where the picture is more background than scene."""
    normals: Float[np.ndarray, "h w 3"]
    """In world axes; 0 where there is no depth, and everywhere in clouds."""
    ids: Int[np.ndarray, "h w"]
    """0 where there is no depth, and everywhere where the field has no labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelRays:
    """The rays of a picture in a field's unit cube, and what brings distances back."""

    origins: Float[Tensor, "r 3"]
    directions: Float[Tensor, "r 3"]
    depth_of_distance: Float[np.ndarray, " r"]
    """Depth along the camera's axis, in world units, of a distance of 1."""


def pixel_rays(
    box: Box,
    intrinsics: Intrinsics,
    camera_to_world: Float[np.ndarray, "4 4"],
    device: torch.device,
) -> PixelRays:
    """One ray through the centre of every pixel."""
    rays = camera_rays(intrinsics, camera_to_world)
    return PixelRays(
        origins=torch.from_numpy(box.to_unit(rays.origins)).to(device, torch.float32),
        directions=torch.from_numpy(rays.directions).to(device, torch.float32),
        depth_of_distance=rays.directions @ camera_to_world[:3, 2] * box.side,
    )


@torch.no_grad()
def render_distance_view(
    field: DistanceField,
    intrinsics: Intrinsics,
    camera_to_world: Float[np.ndarray, "4 4"],
    *,
    background: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> RenderedView:
    """A surface, matt grey under one light."""
    device = next(field.parameters()).device
    rays = pixel_rays(field.box, intrinsics, camera_to_world, device)
    hits = trace_spheres(field, rays.origins, rays.directions)
    rgb = torch.where(hits.is_hit[:, None], shade(hits), shade(hits).new_tensor(background))
    size = (intrinsics.height, intrinsics.width)
    depth = hits.distance.cpu().numpy() * rays.depth_of_distance
    return RenderedView(
        rgb_srgb=rgb.cpu().numpy().reshape(*size, 3),
        opacity=hits.is_hit.cpu().numpy().astype(np.float32).reshape(size),
        depth=depth.astype(np.float32).reshape(size),
        normals=hits.normals.cpu().numpy().reshape(*size, 3),
        ids=np.zeros(size, dtype=np.int64),
    )


@torch.no_grad()
def render_volume_view(
    field: VolumeField,
    intrinsics: Intrinsics,
    camera_to_world: Float[np.ndarray, "4 4"],
    *,
    chunk_size: int = 4096,
) -> RenderedView:
    """A cloud before its sky; linear radiance is clipped to 1 and given sRGB's curve."""
    device = field.occupancy.density.device
    rays = pixel_rays(UNIT_BOX, intrinsics, camera_to_world, device)
    parts = []
    for start in range(0, len(rays.origins), chunk_size):
        chunk = slice(start, start + chunk_size)
        directions = rays.directions[chunk]
        samples = march(field.occupancy, rays.origins[chunk], directions, step=CLOUD_STEP)
        density, scattered = field.medium(samples.positions)
        weights = composite(samples, density)
        opacity = weights.opacity
        radiance = weights.sum(scattered) + (1.0 - opacity)[:, None] * sky(directions)
        parts.append((radiance, opacity, weights.median_distance()))
    radiance, opacity, distance = (torch.cat(each).cpu() for each in zip(*parts, strict=True))
    size = (intrinsics.height, intrinsics.width)
    depth = distance.numpy() * rays.depth_of_distance
    return RenderedView(
        rgb_srgb=to_srgb(radiance.numpy()).reshape(*size, 3),
        opacity=opacity.numpy().reshape(size),
        depth=depth.astype(np.float32).reshape(size),
        normals=np.zeros((*size, 3), dtype=np.float32),
        ids=np.zeros(size, dtype=np.int64),
    )


def to_srgb(linear: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
    """Linear light, clipped to [0, 1], with sRGB's curve.

    Source:
        IEC 61966-2-1.
    """
    clipped = np.clip(linear, 0.0, 1.0)
    high = 1.055 * np.maximum(clipped, 1e-8) ** (1.0 / 2.4) - 0.055
    return np.where(clipped <= 0.0031308, 12.92 * clipped, high).astype(np.float32)
