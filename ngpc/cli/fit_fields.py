"""``ngpc fit sdf``, ``ngpc fit nerf`` and ``ngpc fit volume``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from tqdm import tqdm

from ngpc.backends.registry import choose_backend
from ngpc.cli.cameras import pose_around
from ngpc.cli.devices import check_placement
from ngpc.config import AdamConfig
from ngpc.data.images import replace_file, write_image
from ngpc.data.meshes import read_mesh, write_ply
from ngpc.data.posed_images import PosedImages, read_posed_images
from ngpc.data.volumes import read_volume
from ngpc.errors import ConfigError, MediaError, explain
from ngpc.fields.field_files import save_field
from ngpc.geometry.paths import pinhole
from ngpc.rendering.radiance import render_view
from ngpc.rendering.views import RenderedView, render_distance_view, render_volume_view
from ngpc.tasks.image import psnr
from ngpc.tasks.nerf import NerfFitConfig, fit_nerf, nerf_settings, score_nerf
from ngpc.tasks.sdf import SdfFitConfig, extract_mesh, fit_sdf, score_sdf, sdf_settings
from ngpc.tasks.volume import VolumeFitConfig, fit_volume, path_traced_picture, volume_settings

FIELD_NAME, RENDER_NAME, RECORD_NAME = "field.safetensors", "render.png", "record.json"
RUN_NAME, MESH_NAME = "run.safetensors", "mesh.ply"
PREVIEW_SIZE = 128
NUM_SCORED_VIEWS = 8
NUM_REFERENCE_PATHS = 64

C = TypeVar("C", SdfFitConfig, NerfFitConfig, VolumeFitConfig)


def fit_sdf_command(arguments: argparse.Namespace) -> int:
    """Fit a mesh; write the field, its surface as PLY, a picture and a record."""
    _prepare(arguments)
    config = with_flags(SdfFitConfig(), arguments)
    mesh = read_mesh(arguments.mesh)
    with _Progress(config.num_steps, _as_error) as show:
        fit = fit_sdf(mesh, config, **_placement(arguments), on_step=show)
    scores = score_sdf(fit.field, mesh)
    write_ply(arguments.output / MESH_NAME, extract_mesh(fit.field))
    view = render_distance_view(
        fit.field, _preview_camera(), pose_around(fit.field.box, elevation_deg=25.0)
    )
    record = dataclasses.asdict(scores) | {
        "mesh": str(arguments.mesh),
        "num_faces": len(mesh.faces),
        "num_dropped_faces": mesh.num_dropped_faces,
        "is_watertight": mesh.is_watertight,
        "pool_duration_s": fit.pool_duration_s,
    }
    _finish(arguments, fit.field, view, record, sdf_settings(config), fit.duration_s)
    print(
        f"{arguments.output / FIELD_NAME}: IoU {scores.iou:.4f}, Chamfer {scores.chamfer:.5f}, "
        f"normals {scores.normal_error_deg:.1f} degrees, {config.num_steps} steps "
        f"in {fit.duration_s:.1f} s"
    )
    return 0


def fit_nerf_command(arguments: argparse.Namespace) -> int:
    """Fit posed pictures; write the field, a picture and a record."""
    _prepare(arguments)
    config = with_flags(NerfFitConfig(), arguments)
    posed = read_posed_images(arguments.data)
    held_out = held_out_views(posed, arguments.test)
    with _Progress(config.num_steps, _as_psnr) as show:
        fit = fit_nerf(posed, config, **_placement(arguments), on_step=show)
    record: dict[str, Any] = {"data": str(posed.path), "num_samples": fit.num_samples}
    said = f"{config.num_steps} steps in {fit.duration_s:.1f} s"
    if held_out is not None:
        scores = score_nerf(fit.field, held_out, max_views=NUM_SCORED_VIEWS)
        record |= {"test": str(held_out.path)} | dataclasses.asdict(scores)
        said = f"{scores.psnr_db:.2f} dB, SSIM {scores.ssim:.3f} on held-out views, {said}"
        if scores.depth_error is not None:
            said += f", depth within {scores.depth_error:.4f}"
    first = (held_out or posed).views[0]
    view = render_view(fit.field, first.intrinsics, first.camera_to_world)
    _finish(arguments, fit.field, view, record, nerf_settings(config), fit.duration_s)
    print(f"{arguments.output / FIELD_NAME}: {said}")
    return 0


def fit_volume_command(arguments: argparse.Namespace) -> int:
    """Fit a density volume; write the field, a picture and a record."""
    _prepare(arguments)
    config = with_flags(VolumeFitConfig(), arguments)
    volume = read_volume(arguments.volume, optical_depth=arguments.optical_depth)
    with _Progress(config.num_steps, _as_psnr) as show:
        fit = fit_volume(volume, config, **_placement(arguments), on_step=show)
    camera, pose = _preview_camera(), pose_around(None, elevation_deg=15.0)
    view = render_volume_view(fit.field, camera, pose)
    truth = path_traced_picture(volume, camera, pose, paths_per_pixel=NUM_REFERENCE_PATHS)
    record = {
        "volume": str(arguments.volume),
        "optical_depth": arguments.optical_depth,
        "psnr_db": psnr(view.rgb_srgb, truth),
        "reference_paths_per_pixel": NUM_REFERENCE_PATHS,
        "pool_duration_s": fit.pool_duration_s,
    }
    _finish(arguments, fit.field, view, record, volume_settings(config), fit.duration_s)
    print(
        f"{arguments.output / FIELD_NAME}: {record['psnr_db']:.2f} dB against "
        f"{NUM_REFERENCE_PATHS} paths a pixel, {config.num_steps} steps "
        f"in {fit.duration_s:.1f} s after {fit.pool_duration_s:.1f} s of paths"
    )
    return 0


def with_flags(config: C, arguments: argparse.Namespace) -> C:
    """Defaults with what the flags say.

    Raises:
        ConfigError: a count that leaves nothing to do.
    """
    names = {"steps": "num_steps", "batch_size": "batch_size", "seed": "seed"}
    if isinstance(config, NerfFitConfig):
        names["batch_size"] = "samples_per_step"
    given: dict[str, Any] = {}
    for flag, name in names.items():
        value = getattr(arguments, flag)
        if value is None:
            continue
        least = 0 if flag == "seed" else 1
        if value < least:
            raise ConfigError(
                explain(
                    f"--{flag.replace('_', '-')}",
                    expected=f"a whole number of at least {least}",
                    got=str(value),
                    do="Correct it.",
                )
            )
        given[name] = value
    if arguments.learning_rate is not None:
        optimizer: AdamConfig = config.optimizer
        given["optimizer"] = dataclasses.replace(optimizer, learning_rate=arguments.learning_rate)
    return dataclasses.replace(config, **given)


def held_out_views(posed: PosedImages, test: Path | None) -> PosedImages | None:
    """The views to score: those named, or ``transforms_test.json`` beside the training file."""
    if test is not None:
        return read_posed_images(test)
    beside = posed.path.with_name("transforms_test.json")
    return read_posed_images(beside) if beside.is_file() and beside != posed.path else None


def _prepare(arguments: argparse.Namespace) -> None:
    """Refuse what can be refused before any work; clear what is to be replaced."""
    output: Path = arguments.output
    existing = [
        name
        for name in (FIELD_NAME, RENDER_NAME, RECORD_NAME, RUN_NAME)
        if (output / name).exists()
    ]
    is_resumable = arguments.resume and existing == [RUN_NAME]
    if existing and not (arguments.overwrite or is_resumable):
        raise MediaError(
            explain(
                str(output),
                expected="a folder without an earlier fit",
                got=", ".join(existing),
                do="Choose another folder, add --overwrite, or --resume a run that was stopped.",
            )
        )
    if output.exists() and not output.is_dir():
        raise MediaError(
            explain(str(output), expected="a folder", got="a file", do="Choose another output.")
        )
    check_placement(arguments.device, arguments.backend)
    if not arguments.resume:
        (output / RUN_NAME).unlink(missing_ok=True)


def _placement(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "device": arguments.device,
        "backend": arguments.backend,
        "checkpoint": arguments.output / RUN_NAME,
    }


def _preview_camera() -> Any:
    return pinhole(height=PREVIEW_SIZE, width=PREVIEW_SIZE, horizontal_fov_deg=40.0)


def _finish(
    arguments: argparse.Namespace,
    field: Any,
    view: RenderedView,
    record: Mapping[str, Any],
    settings: Mapping[str, Any],
    duration_s: float,
) -> None:
    output: Path = arguments.output
    write_image(output / RENDER_NAME, view.rgb_srgb, overwrite=True)
    save_field(field, output / FIELD_NAME)
    device_type = torch.device(arguments.device).type
    whole = {
        **record,
        "duration_s": duration_s,
        "settings": settings,
        "device": arguments.device,
        "backend": choose_backend(arguments.backend, device_type).name,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }
    replace_file(output / RECORD_NAME, (json.dumps(whole, indent=2) + "\n").encode())
    (output / RUN_NAME).unlink(missing_ok=True)


class _Progress:
    """A bar on stderr that shows the error of the last steps."""

    def __init__(self, num_steps: int, said: Callable[[float], str]) -> None:
        self._bar = tqdm(total=num_steps, unit="step", file=sys.stderr)
        self._said = said
        self._mean: float | None = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def __call__(self, step_index: int, loss: float) -> None:
        self._mean = loss if self._mean is None else 0.95 * self._mean + 0.05 * loss
        self._bar.update(step_index + 1 - self._bar.n)
        if step_index % 20 == 0 and self._mean > 0.0:
            self._bar.set_postfix_str(self._said(self._mean))


def _as_psnr(mean_squared: float) -> str:
    return f"{-10.0 * math.log10(mean_squared):.2f} dB"


def _as_error(relative: float) -> str:
    return f"error {relative:.3f}"
