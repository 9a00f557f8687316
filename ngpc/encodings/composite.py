"""Several encodings of different coordinates as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ngpc.config import CompositeConfig, Reduction
from ngpc.encodings.padding import PaddedEncoding
from ngpc.errors import ConfigError, explain
from ngpc.shapes import round_up


class Composite(PaddedEncoding):
    """Encodings of ranges of coordinates, side by side, added or multiplied.

    Widths follow tiny-cuda-nn: side by side, a part is filled up with its own padding until the
    next may begin (a grid begins at a multiple of its features per level); padding for a perceptron
    is the last part's. Added or multiplied, all parts are padded alike, and the padding takes part
    in the sum or product.
    """

    config: CompositeConfig

    def __init__(
        self,
        config: CompositeConfig,
        parts: Sequence[PaddedEncoding],
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        """Combine ``parts``, each reading a range (first coordinate, number of coordinates)."""
        super().__init__()
        self.config = config
        self.parts = nn.ModuleList(parts)
        self.ranges = tuple(ranges)
        widths = [part.num_outputs for part in parts]
        if config.reduction is Reduction.CONCATENATION:
            so_far = 0
            for index, following in enumerate(parts[1:]):
                end = round_up(so_far + widths[index], following.output_multiple)
                widths[index] = end - so_far
                so_far = end
        else:
            if len(set(widths)) > 1:
                raise ConfigError(
                    explain(
                        f"encoding with reduction {config.reduction}",
                        expected="nested encodings of one width",
                        got=f"{widths}",
                        do="Make them equally wide, or use Concatenation.",
                    )
                )
            widths = [round_up(width, self.output_multiple) for width in widths]
        self.widths = tuple(widths)

    @property
    def num_outputs(self) -> int:
        """Width of an encoded position."""
        if self.config.reduction is Reduction.CONCATENATION:
            return sum(self.widths)
        return self.widths[0]

    @property
    def output_multiple(self) -> int:
        """The column at which another composite lets this one begin is a multiple of this."""
        return math.lcm(*(part.output_multiple for part in self._encodings()))

    def _encodings(self) -> list[PaddedEncoding]:
        return [cast(PaddedEncoding, part) for part in self.parts]

    def forward(self, positions: Float[Tensor, "p x"]) -> Float[Tensor, "p d"]:
        """Encode positions."""
        return self.encode_padded(positions, self.num_outputs)

    def encode_padded(self, positions: Float[Tensor, "p x"], width: int) -> Float[Tensor, "p d"]:
        """Encode positions and fill up to ``width`` columns, with the padding of the parts."""
        widths = list(self.widths)
        if self.config.reduction is Reduction.CONCATENATION:
            widths[-1] += width - self.num_outputs
        else:
            widths = [width] * len(widths)
        features = [
            part.encode_padded(positions[:, begin : begin + size], part_width)
            for part, (begin, size), part_width in zip(
                self._encodings(), self.ranges, widths, strict=True
            )
        ]
        if self.config.reduction is Reduction.CONCATENATION:
            return torch.cat(features, dim=1)
        combined = features[0]
        for other in features[1:]:
            is_sum = self.config.reduction is Reduction.SUM
            combined = combined + other if is_sum else combined * other
        return combined
