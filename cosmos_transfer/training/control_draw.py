"""Which controls act in a training step, and where: every kind of weight map a user may write.

The active controls are drawn per step, so that a branch that is not needed costs nothing; the maps
are drawn per clip: numbers, rectangles, half planes and ramps over time, then the rule ``cap``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.weights.fusion import normalize_weights

SHARE_NONE = 0.10
SHARE_ALL = 0.35
SHARE_ONE = 0.40  # the rest: two, or all but one
SHARE_MAPS = 0.30  # of the clips, the share whose weights vary over the picture


def draw_active(names: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
    """The controls of one step, in the order of ``names``."""
    u = rng.random()
    if u < SHARE_NONE:
        return ()
    if u < SHARE_NONE + SHARE_ALL:
        return tuple(names)
    if u < SHARE_NONE + SHARE_ALL + SHARE_ONE or len(names) < 3:
        return (names[int(rng.integers(len(names)))],)
    count = int(rng.integers(2, len(names)))
    chosen = set(rng.choice(len(names), size=count, replace=False).tolist())
    return tuple(name for index, name in enumerate(names) if index in chosen)


def draw_weights(
    num_controls: int, batch_size: int, grid: tuple[int, int, int], rng: np.random.Generator
) -> Float[Tensor, "k b n"]:
    """Token weights of the active controls, under the rule ``cap``."""
    weights = torch.empty(num_controls, batch_size, *grid)
    for clip in range(batch_size):
        same = rng.random() < 0.5  # all controls at one weight, as people write it
        number = _draw_number(rng)
        for control in range(num_controls):
            weights[control, clip] = number if same else _draw_number(rng)
            if rng.random() < SHARE_MAPS:
                weights[control, clip] *= _draw_map(grid, rng)
    return normalize_weights(weights.flatten(2), "cap")


def _draw_number(rng: np.random.Generator) -> float:
    return 1.0 if rng.random() < 0.5 else float(rng.uniform(0.15, 1.0))


def _draw_map(grid: tuple[int, int, int], rng: np.random.Generator) -> Float[Tensor, "t h w"]:
    frames, height, width = grid
    kind = rng.integers(3)
    if kind == 0:  # a rectangle
        region = torch.zeros(grid)
        rows = np.sort(rng.choice(height + 1, size=2, replace=False))
        columns = np.sort(rng.choice(width + 1, size=2, replace=False))
        region[:, rows[0] : rows[1], columns[0] : columns[1]] = 1.0
    elif kind == 1:  # a half plane
        y, x = torch.meshgrid(
            torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij"
        )
        angle, offset = rng.uniform(0, 2 * np.pi), rng.uniform(-0.5, 0.5)
        side = (np.cos(angle) * x + np.sin(angle) * y > offset).float()
        region = side.expand(frames, height, width).clone()
    else:  # a ramp over time
        start, end = rng.random(2)
        region = torch.linspace(float(start), float(end), frames)[:, None, None].expand(grid)
        return region.clone()
    return 1.0 - region if rng.random() < 0.5 else region
