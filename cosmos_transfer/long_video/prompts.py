"""One prompt per time range: how much of each a chunk hears."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from cosmos_transfer.long_video.plan import Chunk


def prompt_shares(starts: Sequence[int], chunk: Chunk) -> tuple[float, ...]:
    """The share of a chunk's own frames in the range of each prompt; they sum to one.

    Args:
        starts: First frame of every prompt's range, increasing from 0; each ends where the next
            begins.
        chunk: The chunk; the frames it makes count.
    """
    frames = chunk.made_frames
    ends = [*starts[1:], max(frames.stop, starts[-1] + 1)]
    counts = [
        max(0, min(stop, frames.stop) - max(start, frames.start))
        for start, stop in zip(starts, ends, strict=True)
    ]
    return tuple(count / len(frames) for count in counts)


def blend_tokens(
    tokens: Sequence[Float[Tensor, "1 m d"]], shares: Sequence[float]
) -> Float[Tensor, "1 m d"]:
    """Text tokens between those of several prompts; a share of one gives a prompt's own."""
    heard = [(each, share) for each, share in zip(tokens, shares, strict=True) if share > 0.0]
    if len(heard) == 1:
        return heard[0][0]
    total = heard[0][0] * heard[0][1]
    for each, share in heard[1:]:
        total = total + each * share
    return total
