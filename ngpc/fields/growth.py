"""Where a number that depends on the place grows: what normals of fields are made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def directions_of_growth(
    value_at: Callable[[Float[Tensor, "q 3"]], Float[Tensor, " q"]],
    positions: Float[Tensor, "p 3"],
    *,
    step: float,
) -> Float[Tensor, "p 3"]:
    """Unit directions in which a number grows, by central differences within the unit cube.

    Args:
        value_at: The number at each position.
        positions: Where to look.
        step: To both sides along every axis, in sides of the cube.
    """
    steps = step * torch.eye(3, device=positions.device)
    shifted = positions[None, None] + torch.stack([steps, -steps])[:, :, None]
    values = value_at(shifted.reshape(-1, 3).clamp(0.0, 1.0)).reshape(2, 3, len(positions))
    gradient = (values[0] - values[1]).T
    return gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-12)
