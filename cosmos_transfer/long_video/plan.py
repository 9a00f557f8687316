"""Which frames each chunk makes and which it is given, in whole numbers.

Chunk 0 covers ``[0, chunk_frames)``. Every further chunk starts ``overlap`` frames before the
previous one stops. The first ``inherited`` of those it is given clean; the rest of the overlap it
makes as well, and both makings are cross-faded (:mod:`cosmos_transfer.long_video.stitch`). With an
anchor, the clip's first frame takes the place of the first given one: it says what the clip looked
like at its beginning, and the frames behind it say how things move.

The last chunk is as short as the clip allows; where its length is off the autoencoder's grid
``1 + time * i`` it is padded by reflection in time. Clip, controls, weight maps and prompts of a
chunk are all cut with the same :attr:`Chunk.frame_indices`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.inputs.request import GenerationRequest
from cosmos_transfer.shapes import Strides, reflected_indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One piece of a long clip: frames ``[start, stop)``, then ``num_padded`` reflected ones."""

    index: int
    start: int
    stop: int
    num_inherited: int
    """Frames from ``start`` on that the previous chunk has made and this one is given."""
    num_padded: int
    """Frames reflected at its end to reach the autoencoder's grid."""
    num_blended: int = 0
    """Frames after the inherited ones that both chunks make."""
    is_anchored: bool = False
    """Whether the clip's first frame stands before ``start``, given as well."""

    @property
    def num_given(self) -> int:
        """Leading frames the model is given clean, the anchor included."""
        return self.num_inherited + int(self.is_anchored)

    @property
    def num_frames(self) -> int:
        """Frames the model sees, given and padded ones included."""
        return int(self.is_anchored) + self.stop - self.start + self.num_padded

    @property
    def frame_indices(self) -> tuple[int, ...]:
        """Index in the whole clip of every frame the model sees."""
        length = self.stop - self.start
        own = reflected_indices(length, length + self.num_padded)
        return (*([0] if self.is_anchored else []), *(self.start + index for index in own))

    @property
    def made_frames(self) -> range:
        """Index in the whole clip of the frames this chunk makes, blended ones included."""
        return range(self.start + self.num_inherited, self.stop)


def given_latents(num_frames: int, strides: Strides) -> int:
    """Latent frames that ``num_frames`` given pixel frames come to; 0 for none.

    Raises:
        ShapeError: A number off the grid ``1 + time * i``: part of a latent frame cannot be given.
    """
    return 0 if num_frames == 0 else strides.latent_frames(num_frames)


def plan_chunks(
    num_frames: int,
    *,
    chunk_frames: int,
    overlap: int,
    strides: Strides,
    inherited: int | None = None,
    has_anchor: bool = False,
) -> tuple[Chunk, ...]:
    """Plan the chunks of a clip; a clip that fits in one chunk is one chunk of its own length.

    Args:
        num_frames: Length of the clip.
        chunk_frames: Longest chunk, given frames included; on the grid ``1 + time * i``.
        overlap: Frames a chunk shares with the previous one; 0 makes independent chunks.
        strides: The autoencoder's strides.
        inherited: How many of the shared frames are given clean: 0, or a whole number of latent
            frames, ``1 + time * i``, so that no pixel given is thrown away. All of them unless
            told; the rest is cross-faded.
        has_anchor: Give every further chunk the clip's first frame in the place of the first
            inherited one.

    Raises:
        ConfigError: A length that makes no plan, or lies off the grid.
    """
    inherited = overlap if inherited is None else inherited
    _check(num_frames, chunk_frames, overlap, inherited, strides, has_anchor=has_anchor)
    anchored = int(has_anchor)
    chunks: list[Chunk] = []
    start, is_first = 0, True
    while True:
        stop = min(start + chunk_frames - (0 if is_first else anchored), num_frames)
        length = stop - start + (0 if is_first else anchored)
        chunks.append(
            Chunk(
                index=len(chunks),
                start=start,
                stop=stop,
                num_inherited=0 if is_first else inherited - anchored,
                num_padded=strides.padded_frames(length) - length,
                num_blended=0 if is_first else overlap - inherited,
                is_anchored=has_anchor and not is_first,
            )
        )
        if stop == num_frames:
            return tuple(chunks)
        start, is_first = stop - (overlap - anchored), False


def request_chunks(
    num_frames: int, request: GenerationRequest, *, native_frames: int, strides: Strides
) -> tuple[Chunk, ...]:
    """The plan of a request: its own settings, the checkpoint's where it has none.

    Unless told otherwise a chunk is as long as the checkpoint's own and inherits one frame.
    """
    chunk_frames = request.chunk_frames or native_frames
    overlap = min(1, chunk_frames - 1) if request.overlap is None else request.overlap
    return plan_chunks(
        num_frames,
        chunk_frames=chunk_frames,
        overlap=overlap,
        strides=strides,
        inherited=request.inherit,
        has_anchor=request.anchor,
    )


def _check(
    num_frames: int,
    chunk_frames: int,
    overlap: int,
    inherited: int,
    strides: Strides,
    *,
    has_anchor: bool,
) -> None:
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
    on_grid = inherited == 0 or (inherited > 0 and (inherited - 1) % strides.time == 0)
    if not 0 <= overlap < chunk_frames or (inherited == overlap and not on_grid):
        raise ConfigError(
            explain(
                "overlap",
                expected=f"0 or 1 + {strides.time} * i frames, fewer than a chunk ({chunk_frames})",
                got=f"{overlap}",
                do="Take 1 to continue from the last frame of each chunk; inherit=1 cross-fades the"
                " rest of a longer one.",
            )
        )
    if not on_grid or inherited > overlap:
        raise ConfigError(
            explain(
                "inherit",
                expected=f"0 or 1 + {strides.time} * i frames, at most the overlap ({overlap})",
                got=f"{inherited}",
                do="Take 1, or leave it out to inherit the whole overlap.",
            )
        )
    if has_anchor and inherited <= 1:
        raise ConfigError(
            explain(
                "anchor",
                expected=f"at least {1 + strides.time} inherited frames, the anchor among them",
                got=f"{inherited}",
                do=f"Set overlap={1 + strides.time}.",
            )
        )
