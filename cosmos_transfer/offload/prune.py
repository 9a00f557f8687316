"""Which weights become zero, and what that costs.

Unstructured: any single weight may go. ``magnitude`` drops the smallest of a matrix; ``wanda``
weighs each by how strong its input is and drops the smallest of every row. What a network is most
sensitive to is never touched: norms and their modulation, the embeddings of patches, positions and
time, and the last projection.

Source:
    Wanda, arXiv:2306.11695, equation 1; magnitude pruning, Han et al., arXiv:1506.02626.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.errors import ConfigError, explain

METHODS = ("magnitude", "wanda")
KEPT = (
    r"(^|\.)(norm\w*|patch_embed\w*|time_embed|learnable_pos_embed|proj_out|crossattn_proj"
    r"|img_context_proj|time|modulation|read|write|head)(\.|$)"
)
"""Parts, by the words of a weight's name, that stay dense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What pruning did to a network's weights; ``relative_rms`` is of the weights it touched."""

    num_pruned: int
    num_weights: int
    num_zeros: int
    relative_rms: float

    @property
    def sparsity(self) -> float:
        """Share of all weights that are zero now because of the pruning."""
        return self.num_zeros / self.num_weights if self.num_weights else 0.0


def check_pruning(method: str, sparsity: float) -> None:
    """Refuse a method or a share that means nothing."""
    if method not in METHODS:
        raise ConfigError(
            explain(
                "prune",
                expected="a method among " + ", ".join(METHODS),
                got=repr(method),
                do="magnitude needs no calibration.",
            )
        )
    if not 0.0 <= sparsity <= 1.0:
        raise ConfigError(
            explain(
                "prune",
                expected="a sparsity from 0 to 1",
                got=f"{sparsity}",
                do="0.5 drops every second weight.",
            )
        )


def prunable(network: nn.Module, *, kept: str = KEPT) -> dict[str, nn.Module]:
    """Modules whose weight may be pruned, by the weight's name."""
    return {
        f"{name}.weight": module
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d | nn.Conv3d)
        and re.search(kept, name) is None
        and name
    }


@torch.no_grad()
def prune(
    network: nn.Module,
    *,
    sparsity: float,
    method: str = "magnitude",
    input_norms: Mapping[str, Float[Tensor, " channels"]] | None = None,
    kept: str = KEPT,
) -> PruneReport:
    """Set the least of a network's weights to zero, in place.

    Args:
        network: Any; its linear layers and convolutions are pruned, each to the same share.
        sparsity: Share of each weight matrix that becomes zero.
        method: ``magnitude`` or ``wanda``.
        input_norms: For ``wanda``: from :func:`measured_inputs`.
        kept: Pattern of names that stay dense.
    """
    check_pruning(method, sparsity)
    zeros = touched = 0
    error = size = 0.0
    modules = prunable(network, kept=kept)
    for name, module in modules.items():
        weight: Any = module.weight
        before = weight.detach().clone()
        if method == "wanda":
            if input_norms is None or name not in input_norms:
                raise ConfigError(
                    explain(
                        "prune",
                        expected=f"the inputs of {name}, measured",
                        got="none",
                        do="Run the network within measured_inputs first, or use magnitude.",
                    )
                )
            score = _wanda_score(module, before, input_norms[name])
        else:
            score = before.float().abs().reshape(1, -1)
        dropped = _smallest(score, sparsity).reshape(before.shape)
        weight.masked_fill_(dropped, 0.0)
        zeros += int(dropped.sum())
        touched += before.numel()
        error += float(before.float()[dropped].square().sum())
        size += float(before.float().square().sum())
    total = sum(parameter.numel() for parameter in network.parameters())
    return PruneReport(
        num_pruned=touched,
        num_weights=total,
        num_zeros=zeros,
        relative_rms=(error / size) ** 0.5 if size else 0.0,
    )


def _wanda_score(
    module: nn.Module, weight: Tensor, norms: Float[Tensor, " channels"]
) -> Float[Tensor, "rows columns"]:
    rows = rearrange(weight.float().abs(), "out inner ... -> out inner (...)")
    groups = int(getattr(module, "groups", 1))
    # A grouped convolution's rows see the channels of their group only.
    by_row = norms.reshape(groups, -1).repeat_interleave(rows.shape[0] // groups, dim=0)
    return (rows * by_row[:, :, None]).flatten(1)


def _smallest(score: Float[Tensor, "rows columns"], share: float) -> Tensor:
    """True at exactly the smallest ``share`` of every row, rounded down."""
    count = int(share * score.shape[1])
    dropped = torch.zeros_like(score, dtype=torch.bool)
    if count:
        dropped.scatter_(1, score.topk(count, dim=1, largest=False).indices, True)
    return dropped


@contextmanager
def measured_inputs(
    network: nn.Module, *, kept: str = KEPT
) -> Iterator[dict[str, Float[Tensor, " channels"]]]:
    """Measure how strong every prunable layer's inputs are while the network runs.

    Yields:
        Root of the summed squares per input channel, by weight name; filled when the block ends.
    """
    squares: dict[str, Tensor] = {}
    norms: dict[str, Tensor] = {}
    handles = []

    def measure(name: str, module: nn.Module) -> Any:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0].detach().float()
            channel = -1 if isinstance(module, nn.Linear) else 1
            axes = [axis for axis in range(x.ndim) if axis != channel % x.ndim]
            found = x.square().sum(dim=axes)
            squares[name] = squares[name] + found if name in squares else found

        return hook

    for name, module in prunable(network, kept=kept).items():
        handles.append(module.register_forward_pre_hook(measure(name, module)))
    try:
        yield norms
    finally:
        for handle in handles:
            handle.remove()
        norms |= {name: value.sqrt() for name, value in squares.items()}
