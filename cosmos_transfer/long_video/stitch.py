"""The frames every chunk made, as one clip of exactly the planned length.

Where two chunks made the same frames, the later one is first brought to the colours of the earlier:
what differs in mean and deviation between two makings of the same frames is the chunk's own look,
and it is taken off all of its frames. Then the two are cross-faded: the window of the earlier falls
as that of the later rises, and they sum to one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8

from cosmos_transfer.errors import ShapeError, explain
from cosmos_transfer.long_video.plan import Chunk

MOST_CONTRAST = 1.5
"""Of two makings of the same frames, one has at most so many times the other's contrast; more is
taken for a difference of content."""


def rising_window(num_frames: int) -> Float[np.ndarray, " f"]:
    """Share of the later chunk in each blended frame; the earlier one's is the rest.

    Linear, and symmetric: the share of one chunk is that of the other read backwards.
    """
    return np.arange(1, num_frames + 1) / (num_frames + 1)


def blend(
    earlier: UInt8[np.ndarray, "f h w 3"], later: UInt8[np.ndarray, "f h w 3"]
) -> UInt8[np.ndarray, "f h w 3"]:
    """Cross-fade two makings of the same frames; equal ones come back as they are."""
    faded = np.empty_like(later)
    for frame, old, new, share in zip(
        faded, earlier, later, rising_window(len(later)), strict=True
    ):
        frame[:] = np.rint(old + share * (new.astype(np.float64) - old))
    return faded


def match_colors(
    frames: UInt8[np.ndarray, "_ h w 3"],
    of_these: UInt8[np.ndarray, "f h w 3"],
    to_those: UInt8[np.ndarray, "f h w 3"],
) -> UInt8[np.ndarray, "_ h w 3"]:
    """Move frames by what brings mean and deviation of ``of_these`` to those of ``to_those``.

    Per colour; contrast changes by at most :data:`MOST_CONTRAST`. Equal statistics change no byte.
    """
    here, there = (each.reshape(-1, 3).astype(np.float64) for each in (of_these, to_those))
    deviation = here.std(axis=0)
    ratio = np.divide(
        there.std(axis=0), deviation, out=np.ones_like(deviation), where=deviation > 0
    )
    gain = np.clip(ratio, 1.0 / MOST_CONTRAST, MOST_CONTRAST)
    offset = there.mean(axis=0) - gain * here.mean(axis=0)
    matched = np.empty_like(frames)
    for result, frame in zip(matched, frames, strict=True):
        result[:] = np.rint(frame * gain + offset).clip(0, 255)
    return matched


class Stitcher:
    """Takes the chunks one after another, and gives out the frames that are finished.

    Frames that the next chunk will make as well are held back until it has.

    Args:
        plan: The plan of chunks.
    """

    def __init__(self, plan: Sequence[Chunk]) -> None:
        self._plan = plan
        self._next = 0
        self._held: UInt8[np.ndarray, "_ h w 3"] | None = None
        self._recent: UInt8[np.ndarray, "_ h w 3"] | None = None
        self._first: UInt8[np.ndarray, "1 h w 3"] | None = None

    def given(self) -> UInt8[np.ndarray, "_ h w 3"] | None:
        """The clean frames that the next chunk is given, the anchor first; None for none."""
        chunk = self._plan[self._next]
        if chunk.num_given == 0:
            return None
        assert self._first is not None
        assert self._recent is not None
        parts = [self._first] if chunk.is_anchored else []
        if chunk.num_inherited:
            parts.append(self._recent[-chunk.num_inherited :])
        return np.concatenate(parts)

    def add(self, made: UInt8[np.ndarray, "_ h w 3"]) -> UInt8[np.ndarray, "_ h w 3"]:
        """The frames that are finished now that the next chunk has made its own.

        Args:
            made: What :func:`made_part` keeps of a chunk.

        Raises:
            ShapeError: A chunk too many, or of another length than planned.
        """
        if self._next >= len(self._plan):
            raise ShapeError(
                explain(
                    "stitch",
                    expected=f"one piece per chunk ({len(self._plan)})",
                    got=f"{self._next + 1}",
                    do="Run the chunks of the plan, each once.",
                )
            )
        chunk = self._plan[self._next]
        if len(made) != len(chunk.made_frames):
            raise _wrong_length(chunk, len(chunk.made_frames), len(made))
        if chunk.num_blended:
            assert self._held is not None
            made = match_colors(made, made[: chunk.num_blended], self._held)
            faded = blend(self._held, made[: chunk.num_blended])
            made = np.concatenate([faded, made[chunk.num_blended :]])
        self._next += 1
        held = self._plan[self._next].num_blended if self._next < len(self._plan) else 0
        finished, self._held = made[: len(made) - held], made[len(made) - held :]
        if self._first is None:
            self._first = finished[:1].copy()
        wanted = max((each.num_inherited for each in self._plan[self._next :]), default=0)
        recent = finished if self._recent is None else np.concatenate([self._recent, finished])
        self._recent = recent[len(recent) - min(wanted, len(recent)) :].copy()
        return finished


def made_part(chunk: Chunk, piece: UInt8[np.ndarray, "_ h w 3"]) -> UInt8[np.ndarray, "_ h w 3"]:
    """What a chunk made: its decoded frames without the given and the padded ones.

    Raises:
        ShapeError: The piece has another length than the chunk.
    """
    if len(piece) != chunk.num_frames:
        raise _wrong_length(chunk, chunk.num_frames, len(piece))
    return piece[chunk.num_given : len(piece) - chunk.num_padded]


def stitch(
    plan: Sequence[Chunk], pieces: Sequence[UInt8[np.ndarray, "_ h w 3"]]
) -> UInt8[np.ndarray, "f h w 3"]:
    """Join the decoded chunks of a whole clip.

    Args:
        plan: The plan of chunks.
        pieces: Every chunk's decoded frames, given and padded ones included.

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
    stitcher = Stitcher(plan)
    return np.concatenate(
        [stitcher.add(made_part(chunk, piece)) for chunk, piece in zip(plan, pieces, strict=True)]
    )


def _wrong_length(chunk: Chunk, expected: int, got: int) -> ShapeError:
    return ShapeError(
        explain(
            f"stitch, chunk {chunk.index}",
            expected=f"{expected} frames",
            got=f"{got}",
            do="Decode the whole chunk.",
        )
    )
