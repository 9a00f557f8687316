"""Bodies to fit without a download: distance functions, joined and cut, meshed.

Every function takes points ``n 3`` and is negative inside; the bodies fit into [-1, 1]^3. Joined
and cut bodies are bounds of the distance away from the surface, which meshing does not notice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from skimage.measure import marching_cubes

from ngpc.data.meshes import Mesh, clean_mesh
from ngpc.errors import ConfigError, explain

Solid = Callable[[np.ndarray], np.ndarray]


def sphere(centre: tuple[float, float, float], radius: float) -> Solid:
    """A ball."""
    return lambda p: np.linalg.norm(p - np.asarray(centre), axis=-1) - radius


def box(half: tuple[float, float, float], rounding: float = 0.0) -> Solid:
    """A block around the origin, its edges rounded by a radius."""

    def distance(p: np.ndarray) -> np.ndarray:
        q = np.abs(p) - (np.asarray(half) - rounding)
        outside = np.linalg.norm(np.maximum(q, 0.0), axis=-1)
        return outside + np.minimum(q.max(axis=-1), 0.0) - rounding

    return distance


def cylinder(axis: int, radius: float) -> Solid:
    """An endless rod along a coordinate axis."""
    others = [index for index in range(3) if index != axis]
    return lambda p: np.linalg.norm(p[..., others], axis=-1) - radius


def torus(ring: float, tube: float) -> Solid:
    """A ring around z."""

    def distance(p: np.ndarray) -> np.ndarray:
        across = np.linalg.norm(p[..., :2], axis=-1) - ring
        return np.hypot(across, p[..., 2]) - tube

    return distance


def union(*solids: Solid) -> Solid:
    """All of them."""
    return lambda p: np.minimum.reduce([solid(p) for solid in solids])


def cut(solid: Solid, *tools: Solid) -> Solid:
    """One without the others."""
    return lambda p: np.maximum.reduce([solid(p), *(-tool(p) for tool in tools)])


def intersection(*solids: Solid) -> Solid:
    """What they have in common."""
    return lambda p: np.maximum.reduce([solid(p) for solid in solids])


SOLIDS: dict[str, Solid] = {
    "torus": torus(0.62, 0.27),
    "drilled": cut(
        intersection(box((0.7, 0.7, 0.7), 0.06), sphere((0.0, 0.0, 0.0), 0.93)),
        *(cylinder(axis, 0.34) for axis in range(3)),
    ),
    "blob": union(
        sphere((0.0, 0.0, -0.25), 0.55),
        sphere((0.0, 0.0, 0.42), 0.36),
        intersection(torus(0.62, 0.14), box((0.8, 0.8, 0.3))),
        intersection(cylinder(1, 0.13), box((0.8, 0.85, 0.8))),
    ),
}


def solid_mesh(name: str, *, resolution: int = 48) -> Mesh:
    """The surface of one of :data:`SOLIDS`, from a grid of that many cells along an axis.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in SOLIDS:
        raise ConfigError(
            explain("solid", expected=f"one of {', '.join(SOLIDS)}", got=repr(name), do="Name one.")
        )
    axis = np.linspace(-1.0, 1.0, resolution + 1)
    points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
    return mesh_of_values(SOLIDS[name](points), low=-1.0, high=1.0, where=name)


def mesh_of_values(
    values: Float[np.ndarray, "r r r"], *, low: float, high: float, where: str
) -> Mesh:
    """The surface where values on a grid (x y z, ends included) cross zero; negative is inside.

    Raises:
        ConfigError: they nowhere do.
    """
    if not (values.min() < 0.0 < values.max()):
        raise ConfigError(
            explain(
                where,
                expected="values of both signs",
                got=f"{values.min():.3g} to {values.max():.3g}",
                do="Train longer, or check the mesh: there is no surface to extract.",
            )
        )
    spacing = (high - low) / (values.shape[0] - 1)
    vertices, faces, _, _ = marching_cubes(values, 0.0, spacing=(spacing,) * 3)
    return clean_mesh(vertices + low, faces, where=where)
