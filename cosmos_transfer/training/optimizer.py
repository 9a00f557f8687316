"""Muon for the matrices inside the blocks, AdamW for everything else, behind one object.

torch's own Muon takes matrices only; a convolution is one here, its kernel unfolded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

MUON_LEARNING_RATE = 0.02
ADAM_LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01
MUON_MOMENTUM = 0.95
ADAM_BETAS = (0.9, 0.98)


def orthogonalize(matrix: Float[Tensor, "r c"], num_iterations: int = 5) -> Float[Tensor, "r c"]:
    """The nearest semi-orthogonal matrix, roughly: singular values between 0.6 and 1.3.

    Those a thousand times smaller than the largest, and smaller still, are not lifted all the way.

    Source:
        Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024); the
        quintic Newton-Schulz iteration with their coefficients.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrix.shape[0] <= matrix.shape[1]
    x = matrix if wide else matrix.T
    x = x / (x.norm() + 1e-7)
    for _ in range(num_iterations):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.T


class MuonAdam(torch.optim.Optimizer):
    """One optimiser, two kinds of groups, told apart by the group's ``use_muon``.

    Inside the blocks whatever has two axes or more is a matrix. The scales of the norms there,
    ``c 1 1``, are not: a matrix of one column would move by the full rate at every step, whatever
    the size of its gradient.
    """

    def __init__(self, modules: Iterable[tuple[str, nn.Module]]) -> None:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for _, module in modules:
            for name, parameter in module.named_parameters():
                inside = any(part in name for part in ("blocks", "attention", "decoder"))
                is_matrix = parameter.ndim >= 2 and parameter.numel() > parameter.shape[0]
                (matrices if inside and is_matrix else others).append(parameter)
        groups: list[dict[str, Any]] = [
            {"params": matrices, "use_muon": True, "base_lr": MUON_LEARNING_RATE},
            {"params": others, "use_muon": False, "base_lr": ADAM_LEARNING_RATE},
        ]
        super().__init__(
            [g for g in groups if g["params"]], {"lr": 0.0, "weight_decay": WEIGHT_DECAY}
        )

    def set_rate(self, factor: float) -> None:
        """Scale the groups' learning rates; 1 is the full rate."""
        for group in self.param_groups:
            group["lr"] = group["base_lr"] * factor

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply one update from the gradients that are there."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                update = self._muon if group["use_muon"] else self._adam
                parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                update(parameter, parameter.grad, group["lr"])

    def _muon(self, parameter: Tensor, gradient: Tensor, rate: float) -> None:
        state = self.state[parameter]
        momentum = state.setdefault("momentum", torch.zeros_like(parameter))
        momentum.lerp_(gradient, 1.0 - MUON_MOMENTUM)
        ahead = torch.lerp(gradient, momentum, MUON_MOMENTUM).flatten(1)
        update = orthogonalize(ahead)
        scale = max(1.0, update.shape[0] / update.shape[1]) ** 0.5
        parameter.add_(update.view_as(parameter), alpha=-rate * scale)

    def _adam(self, parameter: Tensor, gradient: Tensor, rate: float) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["first"] = torch.zeros_like(parameter)
            state["second"] = torch.zeros_like(parameter)
        state["step"] += 1
        step = state["step"].item()
        first, second = state["first"], state["second"]
        beta_first, beta_second = ADAM_BETAS
        first.lerp_(gradient, 1 - beta_first)
        second.lerp_(gradient.square(), 1 - beta_second)
        denominator = (second / (1 - beta_second**step)).sqrt_().add_(1e-8)
        parameter.addcdiv_(first, denominator, value=-rate / (1 - beta_first**step))
