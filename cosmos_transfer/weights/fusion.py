"""One rule over all controls, and the weighted sum of what their branches say.

:func:`token_weights` is the only way from weight maps to the weights that act, whatever the user
wrote (a number, a mask, a class rule): maps are averaged to tokens, then the rule is applied where
the residuals are added.

Rules, at every token:

``cap``     where the controls together exceed 1, divide by their sum; elsewhere leave them
``always``  divide by the sum wherever it is above 0, so that the controls sum to 1
``none``    leave the weights as they are
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.errors import ConfigError, ShapeError, explain
from cosmos_transfer.inputs.request import WEIGHT_RULES
from cosmos_transfer.shapes import Strides
from cosmos_transfer.weights.resample import to_latent_grid, to_tokens


def normalize_weights(
    weights: Float[Tensor, " k *grid"], rule: str = "cap"
) -> Float[Tensor, " k *grid"]:
    """Apply the rule over controls at every location.

    Under ``cap``, places where the sum is at most one are left alone, so a lone control at 0.5
    stays at 0.5 rather than being promoted to 1.

    Args:
        weights: Raw weight per control and location; unitless, non-negative.
        rule: ``cap``, ``always`` or ``none``; see the module docstring.

    Returns:
        The weights that act. The order of the controls does not matter, to the last bit.

    Raises:
        ConfigError: The rule has no such name.

    Source:
        Cosmos-Transfer1, arXiv:2503.14492, section 3 (``cap``).
    """
    if rule not in WEIGHT_RULES:
        raise ConfigError(
            explain(
                "weight_rule",
                expected="one of " + ", ".join(WEIGHT_RULES),
                got=f"{rule!r}",
                do="Choose one of these names.",
            )
        )
    if rule == "none" or weights.shape[0] == 0:
        return weights
    # float64, and summed in order of size: the total does not depend on the order of the controls.
    exact = weights.to(torch.float64)
    total = exact.sort(dim=0).values.sum(dim=0, keepdim=True)
    if rule == "cap":
        return (exact / total.clamp(min=1.0)).to(weights.dtype)
    share = torch.where(total > 0, exact / torch.where(total > 0, total, 1.0), 0.0)
    return share.to(weights.dtype)


def token_weights(
    maps: Float[Tensor, "k f h w"],
    strides: Strides,
    patch: tuple[int, int, int],
    rule: str = "cap",
) -> Float[Tensor, "k n"]:
    """The weight of every control at every token: area means, then the rule.

    Args:
        maps: Weight per control and pixel in [0, 1], on the autoencoder's grid.
        strides: How many pixels one latent cell covers.
        patch: Latent frames, rows and columns in one token.
        rule: How controls share a place; see the module docstring.
    """
    return normalize_weights(to_tokens(to_latent_grid(maps, strides), patch), rule)


def fuse_residuals(
    residuals: Sequence[Sequence[Float[Tensor, "b n _"]]],
    weights: Float[Tensor, "k b n"],
) -> list[Float[Tensor, "b n _"]]:
    """Blend the branches' residuals token by token: for every block, ``sum_k w_k * r_k``.

    Args:
        residuals: Per control, per controlled block, what the branch adds.
        weights: Weight of every control at every token, already under the rule.

    Returns:
        One residual per controlled block, in the residuals' dtype; empty without controls.

    Raises:
        ShapeError: Residuals and weights come from different lists of controls.
    """
    num_controls = weights.shape[0]
    if len(residuals) != num_controls:
        raise ShapeError(
            explain(
                "fuse_residuals",
                expected=f"residuals of one control per weight map ({num_controls})",
                got=f"{len(residuals)}",
                do="Build both from the same list of controls.",
            )
        )
    num_blocks = {len(of_control) for of_control in residuals}
    if len(num_blocks) > 1:
        raise ShapeError(
            explain(
                "fuse_residuals",
                expected="the same number of controlled blocks in every branch",
                got=f"{sorted(num_blocks)}",
                do="Use branches of one checkpoint.",
            )
        )
    fused: list[Tensor] = []
    for of_block in zip(*residuals, strict=True):
        total = of_block[0] * weights[0, :, :, None]
        for residual, weight in zip(of_block[1:], weights[1:], strict=True):
            total = total + residual * weight[:, :, None]
        # float32 weights lift half-precision residuals for the sum; give the dtype back.
        fused.append(total.to(of_block[0].dtype))
    return fused


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSummary:
    """The weights of one control that acted, in [0, 1]; what the record keeps."""

    mean: float
    minimum: float
    maximum: float


def summarize_weights(
    names: Sequence[str], weights: Float[Tensor, " k *grid"]
) -> dict[str, WeightSummary]:
    """Mean and range of the weights of every control, by name."""
    if len(names) != weights.shape[0]:
        raise ShapeError(
            explain(
                "summarize_weights",
                expected=f"one name per weight map ({weights.shape[0]})",
                got=f"{len(names)}",
                do="Build both from the same list of controls.",
            )
        )
    return {
        name: WeightSummary(
            mean=float(of_control.double().mean()),
            minimum=float(of_control.min()),
            maximum=float(of_control.max()),
        )
        for name, of_control in zip(names, weights, strict=True)
    }
