"""``ngpc render``."""

from __future__ import annotations

import argparse

from ngpc.cli.devices import check_placement
from ngpc.data.images import write_image
from ngpc.errors import MediaError, explain
from ngpc.fields.image import load_image_field, render_image


def render_command(arguments: argparse.Namespace) -> int:
    """Render a fitted field to a PNG."""
    if arguments.output.exists() and not arguments.overwrite:
        raise MediaError(
            explain(
                str(arguments.output),
                expected="a new file",
                got="one that exists",
                do="Choose another name or add --overwrite.",
            )
        )
    check_placement(arguments.device, arguments.backend)
    field = load_image_field(arguments.field, backend=arguments.backend).to(arguments.device)
    rendered = render_image(
        field, height=arguments.height, width=arguments.width, region=tuple(arguments.region)
    )
    write_image(arguments.output, rendered.cpu().numpy(), overwrite=arguments.overwrite)
    height, width, _ = rendered.shape
    print(f"{arguments.output}: {width}x{height}")
    return 0
