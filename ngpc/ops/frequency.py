"""Frequency encoding, on whichever backend is asked for."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ngpc.backends.registry import AUTO, load_backend
from ngpc.errors import ShapeError, explain


def encode_frequency(
    positions: Float[Tensor, "*_shape"], *, num_frequencies: int, backend: str = AUTO
) -> Float[Tensor, "p d"]:
    """Encode each coordinate as sines and cosines at octaves.

    Args:
        positions: ``p x``, any range; the lowest octave has a period of 2.
        num_frequencies: Octaves per coordinate.
        backend: A name out of ``ngpc backends``, or ``auto``.

    Returns:
        ``2 * x * num_frequencies`` columns: per coordinate, per octave, sine then cosine.

    Raises:
        ShapeError: positions are not a list of points.
    """
    if positions.ndim != 2:
        raise ShapeError(
            explain(
                "encode_frequency positions",
                expected="shape (points, dimensions)",
                got=f"{tuple(positions.shape)}",
                do="Flatten leading axes.",
            )
        )
    implementation = load_backend(backend, positions.device.type)
    return implementation.encode_frequency(positions, num_frequencies=num_frequencies)
