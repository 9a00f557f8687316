"""The sizes that a request comes down to: padded to the grid, in chunks of the checkpoint's."""

from __future__ import annotations

from pathlib import Path

from cosmos_transfer.errors import ConfigError, explain
from cosmos_transfer.model.checkpoint import (
    PUBLISHED_FRAMES,
    PUBLISHED_SIZE,
    checkpoint_info,
)
from cosmos_transfer.planning.memory import Workload
from cosmos_transfer.shapes import Size, Strides, round_up


def workload_of(
    name: str | Path,
    *,
    size: tuple[int, int] | None,
    num_frames: int | None,
    num_controls: int,
) -> Workload:
    """What one request asks of a checkpoint.

    Args:
        name: As for ``planning.networks.networks_of``.
        size: Height and width in pixels; the checkpoint's own by default.
        num_frames: Length of the clip; one chunk by default.
        num_controls: Controls that act.
    """
    if str(name) in ("7b", "nvidia/Cosmos-Transfer1-7B"):
        native, frames, strides, multiple = PUBLISHED_SIZE, 121, Strides(time=8, space=8), 16
    elif str(name) in ("2b", "nvidia/Cosmos-Transfer2.5-2B"):
        native, frames = PUBLISHED_SIZE, PUBLISHED_FRAMES
        strides, multiple = Strides(time=4, space=8), 16
    else:
        info = checkpoint_info(name, local_files_only=True)
        native, frames, strides = info.native_size, info.native_frames, info.strides
        multiple = info.spatial_multiple
    height, width = (native.height, native.width) if size is None else size
    length = frames if num_frames is None else num_frames
    if min(height, width, length) < 1:
        raise ConfigError(
            explain(
                "plan",
                expected="at least one pixel and one frame",
                got=f"{length} frames of {height}x{width}",
                do="Write --size 704x1280 --frames 93.",
            )
        )
    return Workload(
        size=Size(round_up(height, multiple), round_up(width, multiple)),
        num_frames=length,
        chunk_frames=min(frames, strides.padded_frames(length)),
        num_controls=num_controls,
    )
