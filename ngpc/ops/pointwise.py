"""Encodings that are a few element-wise operations: the definition serves every device."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ngpc.backends import reference
from ngpc.errors import ShapeError, explain


def encode_one_blob(positions: Float[Tensor, "*_shape"], *, num_bins: int) -> Float[Tensor, "p d"]:
    """Encode each coordinate as a soft histogram of ``num_bins`` bins over the unit interval.

    Raises:
        ShapeError: positions are not a list of points.
    """
    _check_points("encode_one_blob positions", positions)
    return reference.encode_one_blob(positions, num_bins=num_bins)


def encode_triangle_wave(
    positions: Float[Tensor, "*_shape"], *, num_frequencies: int
) -> Float[Tensor, "p d"]:
    """Encode each coordinate as triangle waves at octaves.

    Raises:
        ShapeError: positions are not a list of points.
    """
    _check_points("encode_triangle_wave positions", positions)
    return reference.encode_triangle_wave(positions, num_frequencies=num_frequencies)


def encode_spherical_harmonics(
    directions: Float[Tensor, "*_shape"], *, degree: int
) -> Float[Tensor, "p d"]:
    """Encode directions, given as ``(v + 1) / 2``, as ``degree ** 2`` real harmonics.

    Raises:
        ShapeError: directions are not a list of three coordinates.
    """
    _check_points("encode_spherical_harmonics directions", directions, num_dims=3)
    return reference.encode_spherical_harmonics(directions, degree=degree)


def _check_points(where: str, points: Tensor, num_dims: int | None = None) -> None:
    if points.ndim != 2 or num_dims not in (None, points.shape[1]):
        raise ShapeError(
            explain(
                where,
                expected=f"shape (points, {num_dims or 'dimensions'})",
                got=f"{tuple(points.shape)}",
                do="Flatten leading axes.",
            )
        )
