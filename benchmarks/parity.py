"""Whether a backend of ngpc is right: its error beside the definition's own, judged in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ALLOWANCE = 2.0  # times the definition's own error in the same precision
FLOORS = {torch.float32: 1e-7, torch.float16: 3e-4, torch.bfloat16: 3e-3}  # one last rounding

Run = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One tensor: how far the backend and the definition are from the definition in float64."""

    name: str
    error: float
    own_error: float
    allowed: float

    @property
    def is_right(self) -> bool:
        """Whether the error is within the allowance; NaN is not."""
        return self.error <= self.allowed


def judge(
    backend: Run, definition: Run, inputs: Sequence[Tensor], *, names: Sequence[str]
) -> list[Verdict]:
    """Compare a value and its gradients with respect to every input, random upstream."""
    dtype = inputs[-1].dtype
    outputs = definition(*inputs)
    generator = torch.Generator(device=outputs.device).manual_seed(0)
    upstream = torch.randn(outputs.shape, device=outputs.device, generator=generator).to(dtype)
    found = _derivatives(backend, inputs, upstream)
    own = _derivatives(definition, inputs, upstream)
    truth = _derivatives(definition, [tensor.double() for tensor in inputs], upstream.double())
    verdicts = []
    for name, actual, plain, exact in zip(
        ("value", *(f"gradient of {name}" for name in names)), found, own, truth, strict=True
    ):
        own_error = _relative_rms(plain, exact)
        allowed = max(ALLOWANCE * own_error, FLOORS[dtype])
        verdicts.append(Verdict(name, _relative_rms(actual, exact), own_error, allowed))
    return verdicts


def _derivatives(run: Run, inputs: Sequence[Tensor], upstream: Tensor) -> list[Tensor]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    outputs = run(*leaves)
    return [outputs.detach(), *torch.autograd.grad(outputs, leaves, upstream.to(outputs.dtype))]


def _relative_rms(actual: Tensor, exact: Tensor) -> float:
    error = float((actual.double() - exact).square().mean().sqrt())
    size = float(exact.square().mean().sqrt())
    if error == 0.0:
        return 0.0
    return error / size if size > 0.0 else math.inf
