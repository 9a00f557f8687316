"""The latents that sampling starts from: noise, or a clip with noise over it."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.errors import ShapeError, explain


def start_latents(
    noise: Float[Tensor, "b c t h w"],
    sigma: float,
    *,
    clip: Float[Tensor, "#b c t h w"] | None = None,
    scale_noise: bool = False,
) -> Float[Tensor, "b c t h w"]:
    """Noisy latents at ``sigma``.

    Args:
        noise: Standard normal.
        sigma: The first sigma of the run, in (0, 1].
        clip: Clean latents of the clip to start from; sampling then keeps what ``sigma`` does
            not drown. None starts from noise alone.
        scale_noise: Without a clip, scale the noise by sigma, as EDM does: its largest sigma is
            finite, and what lies below it is a clip of zeros. Flows take the noise as it is.

    Source:
        Cosmos-Transfer1's ``sigma_max``: ``x = clip + sigma_max * noise``, in the flow's scale.
    """
    if clip is None:
        return noise * sigma if scale_noise else noise
    if clip.shape[1:] != noise.shape[1:]:
        raise ShapeError(
            explain(
                "strength",
                expected=f"latents of {tuple(noise.shape[1:])} (c t h w) to start from",
                got=f"{tuple(clip.shape[1:])}",
                do="Encode the clip at the size that is generated.",
            )
        )
    return (1.0 - sigma) * clip.to(noise.dtype) + sigma * noise
