"""An exponential moving average of weights, which is what gets sampled and shipped."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MovingAverage:
    """Averages over about ``1 / (1 - decay)`` steps, fewer at the start of a run."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.num_updates = 0
        self.weights: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in module.state_dict().items()
        }

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Take in the module's current weights."""
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        for name, value in module.state_dict().items():
            if value.dtype.is_floating_point:
                self.weights[name].lerp_(value, 1.0 - decay)
            else:
                self.weights[name].copy_(value)
