"""Weight maps from the pixel grid to the latent grid and on to tokens, by area means.

The first pixel frame is a latent frame of its own; every further latent frame is the mean of its
``strides.time`` pixel frames, exactly as a causal autoencoder groups them. A mean keeps what a
map says: a token half covered by a mask gets half its weight, and nothing is lost or moved.

Means are taken in float64. A sum of equal float32 values is exact there, so a constant map comes
out with bit-identical constants, which is what makes a number, a constant map and a mask of ones
the same request.
"""

from __future__ import annotations

import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.errors import ShapeError, explain
from cosmos_transfer.shapes import Strides


def to_latent_grid(
    maps: Float[Tensor, "k f h w"], strides: Strides
) -> Float[Tensor, "k t grid_h grid_w"]:
    """Average weight maps over the pixels that each latent cell covers.

    Args:
        maps: Weight per control and pixel; the length lies on the grid ``1 + strides.time * i``,
            height and width are multiples of ``strides.space``.
        strides: How many pixels one latent cell covers.

    Returns:
        The mean weight of every latent cell, in the dtype of ``maps``.

    Raises:
        ShapeError: The maps do not lie on the autoencoder's grid.
    """
    num_frames, height, width = maps.shape[1:]
    strides.latent_frames(num_frames)
    _check_multiple("weight maps", "height", height, strides.space)
    _check_multiple("weight maps", "width", width, strides.space)

    # float64: sums of equal weights stay exact, see the module docstring.
    cells = reduce(
        maps.to(torch.float64),
        "k f (h p) (w q) -> k f h w",
        "mean",
        p=strides.space,
        q=strides.space,
    )
    first, rest = cells[:, :1], cells[:, 1:]
    grouped = reduce(rest, "k (t s) h w -> k t h w", "mean", s=strides.time)
    return torch.cat([first, grouped], dim=1).to(maps.dtype)


def to_tokens(
    latent_maps: Float[Tensor, "k t h w"], patch: tuple[int, int, int]
) -> Float[Tensor, "k n"]:
    """Average latent weight maps over the patch that each token covers; time runs slowest.

    Args:
        latent_maps: Weight per control and latent cell.
        patch: Latent frames, rows and columns in one token.

    Raises:
        ShapeError: The latent grid is not a whole number of patches.
    """
    for axis, size, multiple in zip(
        ("latent frames", "latent rows", "latent columns"),
        latent_maps.shape[1:],
        patch,
        strict=True,
    ):
        _check_multiple("token weights", axis, size, multiple)
    patch_t, patch_h, patch_w = patch
    means = reduce(
        latent_maps.to(torch.float64),
        "k (t pt) (h ph) (w pw) -> k t h w",
        "mean",
        pt=patch_t,
        ph=patch_h,
        pw=patch_w,
    )
    return rearrange(means, "k t h w -> k (t h w)").to(latent_maps.dtype)


def _check_multiple(where: str, axis: str, size: int, multiple: int) -> None:
    if size % multiple:
        raise ShapeError(
            explain(
                where,
                expected=f"a multiple of {multiple} as {axis}",
                got=f"{size}",
                do="Pad the maps like the clip: WeightMaps.padded_to(size).",
            )
        )
