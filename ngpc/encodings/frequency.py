"""Sines and cosines as a module; nothing in it is trained."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ngpc.backends.registry import AUTO
from ngpc.config import FrequencyConfig
from ngpc.encodings.padding import PaddedEncoding
from ngpc.ops.frequency import encode_frequency


class Frequency(PaddedEncoding):
    """Sines and cosines of each coordinate at octaves."""

    config: FrequencyConfig

    padding_value = 1.0
    """What fills up the features before a perceptron: ones, whose weights act as a bias."""

    def __init__(self, config: FrequencyConfig, *, num_dims: int, backend: str = AUTO) -> None:
        """Encode positions of ``num_dims`` coordinates."""
        super().__init__()
        self.config = config
        self.backend = backend
        self.num_dims = num_dims

    @property
    def num_outputs(self) -> int:
        """Width of an encoded position."""
        return 2 * self.num_dims * self.config.num_frequencies

    def forward(self, positions: Float[Tensor, "p x"]) -> Float[Tensor, "p d"]:
        """Encode positions of any range."""
        return encode_frequency(
            positions, num_frequencies=self.config.num_frequencies, backend=self.backend
        )
