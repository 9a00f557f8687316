"""Arithmetic on vectors laid out `3 n`, spelled out because that is several times faster."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from .primitives import Primitive


def dot(first: Float[np.ndarray, "3 #n"], second: Float[np.ndarray, "3 #n"]) -> np.ndarray:
    """Return the scalar product of each pair."""
    return first[0] * second[0] + first[1] * second[1] + first[2] * second[2]


def turn_to_local(
    primitive: Primitive, frame: Int[np.ndarray, " n"], vector: Float[np.ndarray, "3 #n"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Express world vectors, each in its own frame, in a primitive's axes."""
    return _turn(primitive.rotation, primitive.moves, frame, vector)


def turn_to_world(
    primitive: Primitive, frame: Int[np.ndarray, " n"], vector: Float[np.ndarray, "3 #n"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Express a primitive's local vectors, each in its own frame, in the world's axes."""
    return _turn(primitive.rotation.transpose(0, 2, 1), primitive.moves, frame, vector)


def offset_from(
    primitive: Primitive, frame: Int[np.ndarray, " n"], points: Float[np.ndarray, "3 n"]
) -> Float[np.ndarray, "3 n"]:
    """Return world points relative to where a primitive is in each point's frame."""
    if not primitive.moves:
        return points - primitive.position[0][:, None]
    return points - np.stack([primitive.position[:, axis][frame] for axis in range(3)])


def _turn(
    rotation: Float[np.ndarray, "g 3 3"],
    moves: bool,
    frame: Int[np.ndarray, " n"],
    vector: Float[np.ndarray, "3 #n"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Multiply by the transposed rotation of each vector's frame."""
    turned = []
    for axis in range(3):
        gains = rotation[:, :, axis]
        if moves:
            x, y, z = (gains[:, row][frame] for row in range(3))
        else:
            x, y, z = gains[0]
        turned.append(x * vector[0] + y * vector[1] + z * vector[2])
    return turned[0], turned[1], turned[2]
