"""Which frames each chunk makes and which it inherits, in whole numbers.

Chunk 0 covers ``[0, chunk_frames)``. Every further chunk starts ``overlap`` frames before the
previous one stops, inherits those frames from it, and makes the rest. The last chunk is as short
as the clip allows; where its length is off the autoencoder's grid ``1 + time * i`` its last frame
is held. So every frame of the clip is made exactly once, by the chunk that reaches it first.

Clip, controls and weight maps of a chunk are all cut with the same :attr:`Chunk.frame_indices`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.shapes import Strides


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One piece of a long clip: frames ``[start, stop)``, then ``num_padded`` held ones."""

    index: int
    start: int
    stop: int
    num_inherited: int
    """Frames at its start that the previous chunk has made."""
    num_padded: int
    """Frames held at its end to reach the autoencoder's grid."""

    @property
    def num_frames(self) -> int:
        """Frames the model sees, inherited and held ones included."""
        return self.stop - self.start + self.num_padded

    @property
    def frame_indices(self) -> tuple[int, ...]:
        """Index in the whole clip of every frame the model sees."""
        return (*range(self.start, self.stop), *[self.stop - 1] * self.num_padded)

    @property
    def made_frames(self) -> range:
        """Index in the whole clip of the frames this chunk makes."""
        return range(self.start + self.num_inherited, self.stop)


def plan_chunks(
    num_frames: int, *, chunk_frames: int, overlap: int, strides: Strides
) -> tuple[Chunk, ...]:
    """Plan the chunks of a clip; a clip that fits in one chunk is one chunk of its own length.

    Args:
        num_frames: Length of the clip.
        chunk_frames: Longest chunk, inherited frames included; on the grid ``1 + time * i``.
        overlap: Frames a chunk inherits from the previous one: 0 (independent chunks), or a whole
            number of latent frames, ``1 + time * i``, so that no inherited pixel is thrown away.
        strides: The autoencoder's strides.

    Raises:
        ConfigError: A length that makes no plan, or lies off the grid.
    """
    if num_frames < 1:
        raise ConfigError(
            explain("clip", expected="at least 1 frame", got=f"{num_frames}", do="Give a clip.")
        )
    if chunk_frames < 1 or (chunk_frames - 1) % strides.time:
        raise ConfigError(
            explain(
                "chunk_frames",
                expected=f"1 + {strides.time} * i frames",
                got=f"{chunk_frames}",
                do=f"Take {strides.padded_frames(max(1, chunk_frames))}.",
            )
        )
    on_grid = overlap == 0 or (overlap > 0 and (overlap - 1) % strides.time == 0)
    if not on_grid or overlap >= chunk_frames:
        raise ConfigError(
            explain(
                "overlap",
                expected=f"0 or 1 + {strides.time} * i frames, fewer than a chunk ({chunk_frames})",
                got=f"{overlap}",
                do="Take 1 to continue from the last frame of each chunk.",
            )
        )
    chunks: list[Chunk] = []
    start, num_inherited = 0, 0
    while True:
        stop = min(start + chunk_frames, num_frames)
        length = stop - start
        chunks.append(
            Chunk(
                index=len(chunks),
                start=start,
                stop=stop,
                num_inherited=num_inherited,
                num_padded=strides.padded_frames(length) - length,
            )
        )
        if stop == num_frames:
            return tuple(chunks)
        start, num_inherited = stop - overlap, overlap
