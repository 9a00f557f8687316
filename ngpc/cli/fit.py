"""``ngpc fit``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import platform
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ngpc.backends.registry import choose_backend
from ngpc.cli.devices import check_placement
from ngpc.config import (
    ImageFitConfig,
    encoding_to_json,
    image_fit_from_json,
    network_to_json,
    read_json,
)
from ngpc.data.images import read_image, replace_file, write_image
from ngpc.errors import MediaError, explain
from ngpc.fields.image import render_image, save_image_field
from ngpc.tasks.image import ImageFit, fit_image

FIELD_NAME, RENDER_NAME, RECORD_NAME = "field.safetensors", "render.png", "record.json"


def fit_image_command(arguments: argparse.Namespace) -> int:
    """Fit an image, write the field, its rendering and a record, and say how well it went."""
    config = _config(arguments)
    _check_output(arguments.output, overwrite=arguments.overwrite)
    check_placement(arguments.device, arguments.backend)
    image = read_image(arguments.image)
    with tqdm(total=config.num_steps, unit="step", file=sys.stderr) as progress:

        def show(step_index: int, loss: float) -> None:
            progress.update()
            if step_index % 20 == 0 and loss > 0.0:
                progress.set_postfix_str(f"{-10.0 * math.log10(loss):.2f} dB")

        fit = fit_image(
            image, config, device=arguments.device, backend=arguments.backend, on_step=show
        )
    output: Path = arguments.output
    write_image(output / RENDER_NAME, render_image(fit.field).cpu().numpy(), overwrite=True)
    save_image_field(fit.field, output / FIELD_NAME)
    replace_file(
        output / RECORD_NAME, (json.dumps(_record(fit, arguments), indent=2) + "\n").encode()
    )
    print(
        f"{output / FIELD_NAME}: {fit.psnr_db:.2f} dB, {config.num_steps} steps "
        f"in {fit.duration_s:.1f} s"
    )
    return 0


def _config(arguments: argparse.Namespace) -> ImageFitConfig:
    """Defaults, then the file, then the flags."""
    config = ImageFitConfig()
    if arguments.config is not None:
        config = image_fit_from_json(read_json(arguments.config))
    optimizer = config.optimizer
    if arguments.learning_rate is not None:
        optimizer = dataclasses.replace(optimizer, learning_rate=arguments.learning_rate)
    flags = {
        "num_steps": arguments.steps,
        "batch_size": arguments.batch_size,
        "seed": arguments.seed,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    return dataclasses.replace(config, optimizer=optimizer, **given)


def _check_output(output: Path, *, overwrite: bool) -> None:
    existing = [name for name in (FIELD_NAME, RENDER_NAME, RECORD_NAME) if (output / name).exists()]
    if existing and not overwrite:
        raise MediaError(
            explain(
                str(output),
                expected="a folder without an earlier fit",
                got=", ".join(existing),
                do="Choose another folder or add --overwrite.",
            )
        )
    if output.exists() and not output.is_dir():
        raise MediaError(
            explain(str(output), expected="a folder", got="a file", do="Choose another output.")
        )


def _record(fit: ImageFit, arguments: argparse.Namespace) -> dict[str, object]:
    config = fit.config
    assert config.encoding is not None
    device_type = torch.device(arguments.device).type
    return {
        "image": str(arguments.image),
        "height": fit.field.height,
        "width": fit.field.width,
        "psnr_db": fit.psnr_db if math.isfinite(fit.psnr_db) else None,
        "duration_s": fit.duration_s,
        "num_steps": config.num_steps,
        "batch_size": config.batch_size,
        "seed": config.seed,
        "encoding": encoding_to_json(config.encoding),
        "network": network_to_json(config.network),
        "optimizer": {"otype": "Adam", **dataclasses.asdict(config.optimizer)},
        "device": arguments.device,
        "backend": choose_backend(arguments.backend, device_type).name,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }
