"""What every encoding shares: how wide it is, and how it fills up to a wider output.

tiny-cuda-nn lets an encoding write the columns that a perceptron's padded inputs read. Most fill
them with ones behind their features, so that the weights of those columns act as a bias; a grid
fills them with zeros; spherical harmonics put theirs in front.
"""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from ngpc.config import EncodingConfig


class PaddedEncoding(nn.Module):
    """A module that turns positions into ``num_outputs`` features, or into more with padding."""

    config: EncodingConfig

    padding_value: float = 1.0
    """What fills up the features before a perceptron."""

    is_padded_in_front = False
    """Whether padding comes before the features."""

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Width of an encoded position."""

    @property
    def output_multiple(self) -> int:
        """The column at which a composite lets this encoding begin is a multiple of this."""
        return 1

    def encode_padded(self, positions: Float[Tensor, "p x"], width: int) -> Float[Tensor, "p d"]:
        """Encode positions and fill up to ``width`` columns."""
        return self.pad(self(positions), width)

    def pad(self, features: Float[Tensor, "p _d"], width: int) -> Float[Tensor, "p d"]:
        """Fill up features to ``width`` columns."""
        missing = width - features.shape[1]
        columns = (missing, 0) if self.is_padded_in_front else (0, missing)
        padded: Tensor = functional.pad(features, columns, value=self.padding_value)
        return padded
