"""Axis letters and size arithmetic, in whole numbers.

Axis letters used in annotations and einops patterns:
``b`` batch, ``k`` controls, ``c`` channels, ``f`` pixel frames, ``t`` latent frames,
``h w`` height and width, ``n`` tokens, ``m`` text tokens, ``d`` width.

Video in memory is ``b c f h w`` in [-1, 1], latents are ``b c t h w``, tokens run
time-slowest (``t h w``), images on disk are ``f h w c`` uint8.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosmos_transfer.errors import ShapeError, explain


@dataclass(frozen=True, slots=True, kw_only=True)
class Strides:
    """How many pixels one latent cell covers.

    The first frame is a latent frame of its own (causal autoencoders); every further latent
    frame covers ``time`` pixel frames.
    """

    time: int
    space: int

    def latent_frames(self, num_frames: int) -> int:
        """Latent frames of a clip whose length lies on the grid ``1 + time * i``."""
        if num_frames < 1 or (num_frames - 1) % self.time:
            raise ShapeError(
                explain(
                    "clip length",
                    expected=f"1 + {self.time} * i frames",
                    got=f"{num_frames}",
                    do="Pad it with shapes.padded_frames first.",
                )
            )
        return 1 + (num_frames - 1) // self.time

    def pixel_frames(self, num_latent_frames: int) -> int:
        """Pixel frames that ``num_latent_frames`` decode to."""
        return 1 + (num_latent_frames - 1) * self.time

    def padded_frames(self, num_frames: int) -> int:
        """The smallest length on the grid that holds ``num_frames``."""
        return 1 + -(-(num_frames - 1) // self.time) * self.time

    def frame_groups(self, num_latent_frames: int) -> tuple[tuple[int, int], ...]:
        """Pixel frame ranges ``[start, stop)`` that each latent frame covers."""
        groups = [(0, 1)]
        groups += [
            (1 + i * self.time, 1 + (i + 1) * self.time) for i in range(num_latent_frames - 1)
        ]
        return tuple(groups)


def round_up(size: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is at least ``size``."""
    return -(-size // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Size:
    """Height and width in pixels."""

    height: int
    width: int

    def __str__(self) -> str:
        """Width by height, as video people write it."""
        return f"{self.width}x{self.height}"


def working_size(size: Size, *, short_side: int) -> Size:
    """Scale ``size`` so that its short side is ``short_side`` pixels, keeping the aspect ratio.

    The result need not lie on the model's grid: the pipeline pads to it and crops back.
    """
    scale = short_side / min(size.height, size.width)
    return Size(max(1, round(size.height * scale)), max(1, round(size.width * scale)))


def same_aspect(a: Size, b: Size, *, tolerance: float = 0.01) -> bool:
    """Whether two sizes have the same aspect ratio, up to one pixel of rounding."""
    rounding = 1.0 / min(a.height, a.width, b.height, b.width)
    ratio = (a.width * b.height) / (a.height * b.width)
    return abs(ratio - 1.0) <= max(tolerance, rounding)


def reflected_indices(length: int, padded_length: int) -> tuple[int, ...]:
    """Source index of every place along an axis that is reflect-padded at its end.

    Reflection turns round at the last sample without repeating it (``0 1 2 1 0 1 ...``) and goes
    back and forth as often as needed, so any padding works, an axis of one sample included.
    """
    if length < 1 or padded_length < length:
        raise ShapeError(
            explain(
                "reflect padding",
                expected=f"at least one sample and a padded length of at least {length}",
                got=f"{length} samples padded to {padded_length}",
                do="Pad to a size that holds the clip.",
            )
        )
    last = length - 1
    period = max(1, 2 * last)
    return tuple(last - abs(last - index % period) for index in range(padded_length))
