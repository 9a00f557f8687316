"""What the pipeline asks of an autoencoder.

Video is float in [-1, 1]; its length lies on ``1 + strides.time * i`` and its sides are multiples
of ``strides.space``. The first frame is a latent frame of its own. Latents are normalised: about
zero mean and unit variance per channel, which is what the denoiser works in. Encoding is a
function of the clip alone; no autoencoder here draws random numbers.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.errors import ShapeError, explain
from cosmos_transfer.shapes import Strides


@runtime_checkable
class Autoencoder(Protocol):
    """Video to normalised latents and back."""

    @property
    def strides(self) -> Strides:
        """How many pixels one latent cell covers."""
        ...

    @property
    def latent_channels(self) -> int:
        """Channels of the latents."""
        ...

    def encode(self, video: Float[Tensor, "b 3 f h w"]) -> Float[Tensor, "b c t hz wz"]:
        """Encode a clip that lies on the grid."""
        ...

    def encode_control(self, video: Float[Tensor, "b 3 f h w"]) -> Float[Tensor, "b p t hz wz"]:
        """Encode a control clip as the branches read it; the same as ``encode`` for most."""
        ...

    def decode(self, latents: Float[Tensor, "b c t hz wz"]) -> Float[Tensor, "b 3 f h w"]:
        """Decode normalised latents to video in [-1, 1]."""
        ...


def check_on_grid(video: Float[Tensor, "b 3 f h w"], strides: Strides) -> None:
    """Refuse a clip that the autoencoder would cut or stretch.

    Raises:
        ShapeError: Its length or a side lies off the grid.
    """
    strides.latent_frames(video.shape[2])
    if video.shape[3] % strides.space or video.shape[4] % strides.space:
        raise ShapeError(
            explain(
                "autoencoder",
                expected=f"height and width in multiples of {strides.space}",
                got=f"{video.shape[3]}x{video.shape[4]}",
                do="Pad the clip to the grid first.",
            )
        )
