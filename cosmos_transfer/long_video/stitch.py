"""The frames every chunk made, as one clip of exactly the planned length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from cosmos_transfer.errors import ShapeError, explain
from cosmos_transfer.long_video.plan import Chunk


def stitch(
    plan: Sequence[Chunk], pieces: Sequence[UInt8[np.ndarray, "_ h w 3"]]
) -> UInt8[np.ndarray, "f h w 3"]:
    """Join decoded chunks: inherited frames come from the chunk that made them, held ones go.

    Args:
        plan: The plan of chunks.
        pieces: Every chunk's decoded frames, inherited and held ones included.

    Raises:
        ShapeError: A piece is missing or has another length than its chunk.
    """
    if len(plan) == 0 or len(pieces) != len(plan):
        raise ShapeError(
            explain(
                "stitch",
                expected=f"one piece per chunk ({len(plan)})",
                got=f"{len(pieces)}",
                do="Run every chunk of the plan.",
            )
        )
    made = []
    for chunk, piece in zip(plan, pieces, strict=True):
        if len(piece) != chunk.num_frames:
            raise ShapeError(
                explain(
                    f"stitch, chunk {chunk.index}",
                    expected=f"{chunk.num_frames} frames",
                    got=f"{len(piece)}",
                    do="Decode the whole chunk.",
                )
            )
        made.append(piece[chunk.num_inherited : chunk.stop - chunk.start])
    return np.concatenate(made)
