"""An image as a function of position.

Positions are ``(x, y)`` in the unit square, x to the right and y down, so that pixel ``(i, j)`` of
an image of ``h`` rows and ``w`` columns has its centre at ``((j + 0.5) / w, (i + 0.5) / h)``.
Values are ``rgb_srgb``, nominally in [0, 1]; the network is free to leave that range.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from einops import rearrange
from jaxtyping import Float
from safetensors.torch import save
from torch import Tensor, nn

from ngpc.backends.registry import AUTO
from ngpc.config import (
    EncodingConfig,
    MlpConfig,
    encoding_from_json,
    encoding_to_json,
    network_from_json,
    network_to_json,
)
from ngpc.data.images import replace_file
from ngpc.data.tensor_files import read_tensors
from ngpc.encodings import make_encoding
from ngpc.errors import CheckpointError, ConfigError, ShapeError, explain
from ngpc.networks.fused_mlp import FusedMLP
from ngpc.shapes import LAYER_MULTIPLE, round_up

FORMAT = "ngpc image field 1"
NUM_CHANNELS = 3


class ImageField(nn.Module):
    """A colour at every position of the unit square.

    ``height`` and ``width`` are those of the image it stands for: the size it renders to unless
    another is asked for.
    """

    def __init__(
        self,
        *,
        height: int,
        width: int,
        encoding: EncodingConfig,
        network: MlpConfig,
        generator: torch.Generator | None = None,
        backend: str = AUTO,
    ) -> None:
        """Make an untrained field."""
        super().__init__()
        self.height = height
        self.width = width
        self.encoding = make_encoding(encoding, num_dims=2, generator=generator, backend=backend)
        # The encoding pads, not the network: a composite knows where its padding belongs.
        self.padded_width = round_up(self.encoding.num_outputs, LAYER_MULTIPLE)
        self.network = FusedMLP(
            network,
            num_inputs=self.padded_width,
            num_outputs=NUM_CHANNELS,
            generator=generator,
            backend=backend,
        )

    def forward(self, positions: Float[Tensor, "p 2"]) -> Float[Tensor, "p 3"]:
        """The colour at each position."""
        return self.network(self.encoding.encode_padded(positions, self.padded_width))


def pixel_positions(
    pixel_index: Tensor,
    *,
    height: int,
    width: int,
    region: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
) -> Float[Tensor, "p 2"]:
    """Centres of pixels, numbered row by row, of an image of ``region``.

    Args:
        pixel_index: ``p`` whole numbers below ``height * width``.
        height: Rows of the image.
        width: Columns of the image.
        region: Left, top, right, bottom of what the image shows, in field coordinates.
    """
    left, top, right, bottom = region
    row = torch.div(pixel_index, width, rounding_mode="floor").to(torch.float64)
    column = (pixel_index % width).to(torch.float64)
    x = left + (column + 0.5) * ((right - left) / width)
    y = top + (row + 0.5) * ((bottom - top) / height)
    # Pixel numbers of large images need double; positions are single, as kernels take them.
    return torch.stack([x, y], dim=1).to(torch.float32)


@torch.inference_mode()
def render_image(
    field: ImageField,
    *,
    height: int | None = None,
    width: int | None = None,
    region: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
    chunk_size: int = 2**16,
) -> Float[Tensor, "h w 3"]:
    """Sample a field at pixel centres.

    Args:
        field: What to show.
        height: Rows; None with a given width keeps the aspect ratio, None for both is the
            field's own size.
        width: Columns, likewise.
        region: Left, top, right, bottom of what to show, in field coordinates.
        chunk_size: Points evaluated at a time; bounds the memory, not the result.

    Raises:
        ConfigError: a region without area.
        ShapeError: a size without pixels.
    """
    left, top, right, bottom = region
    if not (left < right and top < bottom):
        raise ConfigError(
            explain(
                "region",
                expected="left < right and top < bottom",
                got=" ".join(f"{edge:g}" for edge in region),
                do="Give left, top, right, bottom; 0 0 1 1 is the whole image.",
            )
        )
    height, width = _output_size(field, height, width, region)
    device = next(field.parameters()).device
    chunks = []
    for start in range(0, height * width, chunk_size):
        stop = min(start + chunk_size, height * width)
        pixel_index = torch.arange(start, stop, device=device)
        chunks.append(
            field(pixel_positions(pixel_index, height=height, width=width, region=region))
        )
    return rearrange(torch.cat(chunks), "(h w) c -> h w c", h=height)


def save_image_field(field: ImageField, path: Path) -> None:
    """Write a field to a safetensors file: parameters, and in the header all that rebuilds it.

    No backend is recorded: a field trained on one is loaded on any. The file appears complete or
    not at all.
    """
    description = {
        "height": field.height,
        "width": field.width,
        "encoding": encoding_to_json(field.encoding.config),
        "network": network_to_json(field.network.config),
    }
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in field.state_dict().items()
    }
    content = save(tensors, {"format": FORMAT, "field": json.dumps(description)})
    replace_file(path, content)


def load_image_field(path: Path, *, backend: str = AUTO) -> ImageField:
    """Read a field that :func:`save_image_field` wrote.

    Raises:
        MediaError: there is no such file.
        CheckpointError: the file holds something else, or parameters that do not fit.
    """
    metadata, tensors = read_tensors(path, FORMAT, what="a saved field", writer="`ngpc fit image`")
    try:
        description = json.loads(metadata["field"])
        field = ImageField(
            height=description["height"],
            width=description["width"],
            encoding=encoding_from_json(description["encoding"]),
            network=network_from_json(description["network"]),
            backend=backend,
        )
        field.load_state_dict(tensors, strict=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            explain(
                str(path),
                expected="parameters that fit the header",
                got=reason,
                do="The file is damaged or was edited: fit the image again.",
            )
        ) from error
    return field


def _output_size(
    field: ImageField,
    height: int | None,
    width: int | None,
    region: tuple[float, float, float, float],
) -> tuple[int, int]:
    left, top, right, bottom = region
    rows = field.height * (bottom - top)
    columns = field.width * (right - left)
    if height is None and width is None:
        height, width = field.height, field.width
        if region != (0.0, 0.0, 1.0, 1.0):
            height = max(1, round(width * rows / columns))
    elif height is None and width is not None:
        height = max(1, round(width * rows / columns))
    elif width is None and height is not None:
        width = max(1, round(height * columns / rows))
    assert height is not None
    assert width is not None
    if height < 1 or width < 1:
        raise ShapeError(
            explain(
                "image size",
                expected="at least one row and one column",
                got=f"{height} rows, {width} columns",
                do="Correct height and width.",
            )
        )
    return height, width
