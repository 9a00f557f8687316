"""``ngpc render``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from ngpc.cli.cameras import cameras_of
from ngpc.cli.devices import check_placement
from ngpc.data.control_folders import refuse_existing, write_control_folder
from ngpc.data.images import write_image
from ngpc.errors import ConfigError, MediaError, explain
from ngpc.fields.distance import DistanceField
from ngpc.fields.field_files import format_of, load_field
from ngpc.fields.image import load_image_field, render_image
from ngpc.fields.radiance import RadianceField
from ngpc.fields.volume import VolumeField
from ngpc.geometry.cameras import Intrinsics
from ngpc.rendering.radiance import render_view
from ngpc.rendering.views import (
    UNIT_BOX,
    RenderedView,
    render_distance_view,
    render_volume_view,
)

SceneField = DistanceField | RadianceField | VolumeField
SCENES: tuple[type[SceneField], ...] = (DistanceField, RadianceField, VolumeField)
Renderer = Callable[[Intrinsics, Float[np.ndarray, "4 4"]], RenderedView]


def render_command(arguments: argparse.Namespace) -> int:
    """Render a fitted field: an image's to a PNG, a scene's along a camera path."""
    if not arguments.field.is_file():
        raise MediaError(
            explain(
                str(arguments.field),
                expected="a field that `ngpc fit` wrote",
                got="no file",
                do="Check the path.",
            )
        )
    kinds = {kind.FORMAT: kind for kind in SCENES}
    kind = kinds.get(format_of(arguments.field) or "")
    if kind is None:
        return _render_image(arguments)
    return _render_scene(arguments, kind)


def _render_image(arguments: argparse.Namespace) -> int:
    if arguments.controls is not None or arguments.output is None:
        raise ConfigError(
            explain(
                str(arguments.field),
                expected="--output and no --controls for the field of an image",
                got="--controls" if arguments.controls else "no --output",
                do="Name a PNG to write, or the field of a scene.",
            )
        )
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


def _render_scene(
    arguments: argparse.Namespace,
    kind: type[SceneField],
) -> int:
    if arguments.controls is None and arguments.output is None:
        raise ConfigError(
            explain("render", expected="--output, --controls or both", got="neither", do="Add one.")
        )
    rate = _rate(arguments.rate)
    if arguments.controls is not None:
        refuse_existing(arguments.controls, overwrite=arguments.overwrite)
    if arguments.output is not None and arguments.output.exists() and not arguments.overwrite:
        raise MediaError(
            explain(
                str(arguments.output),
                expected="a new folder",
                got="one that exists",
                do="Choose another name or add --overwrite.",
            )
        )
    check_placement(arguments.device, arguments.backend)
    field = load_field(kind, arguments.field, backend=arguments.backend).to(arguments.device)
    box = UNIT_BOX if isinstance(field, VolumeField) else field.box
    view = field.view if isinstance(field, RadianceField) else {}
    camera, poses = cameras_of(arguments, box, view)
    render = scene_renderer(field, tuple(arguments.background))
    views = [render(camera, pose) for pose in tqdm(poses, unit="frame", file=sys.stderr)]
    if arguments.output is not None:
        _write_pictures(arguments.output, views)
        print(f"{arguments.output}: {len(views)} frames of {camera.width}x{camera.height}")
    if arguments.controls is not None:
        labels = field.labels if isinstance(field, RadianceField) else {}
        write_control_folder(
            arguments.controls,
            rgb_srgb=[each.rgb_srgb for each in views],
            depth_m=[each.depth * arguments.metres_per_unit for each in views],
            ids=[each.ids for each in views] if labels else None,
            labels=labels,
            intrinsics=camera,
            rate=rate,
            overwrite=arguments.overwrite,
        )
        print(
            f"{arguments.controls}: {len(views)} frames of {camera.width}x{camera.height}, for "
            f"cosmos-transfer generate scene={arguments.controls}"
        )
    return 0


def scene_renderer(field: SceneField, background: tuple[float, float, float]) -> Renderer:
    """What makes a picture of a scene's field from a camera and a pose."""
    if isinstance(field, DistanceField):
        surface = field
        return lambda camera, pose: render_distance_view(
            surface, camera, pose, background=background
        )
    if isinstance(field, VolumeField):
        cloud = field
        return lambda camera, pose: render_volume_view(cloud, camera, pose)
    scene = field
    return lambda camera, pose: render_view(scene, camera, pose, background=background)


def _write_pictures(folder: Path, views: list[RenderedView]) -> None:
    """Pictures to look at: colour, depth (near is bright), normals, and the depths themselves."""
    depths = np.stack([each.depth for each in views])
    known = depths[depths > 0]
    near, far = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    for index, each in enumerate(views):
        bright = (far - each.depth) / max(far - near, 1e-9) * 0.9 + 0.1
        shown = {
            "rgb": each.rgb_srgb,
            "depth": np.repeat(np.where(each.depth > 0, bright, 0.0)[:, :, None], 3, axis=2),
            "normals": np.where(each.depth[:, :, None] > 0, each.normals * 0.5 + 0.5, 0.0),
        }
        for name, picture in shown.items():
            write_image(folder / name / f"{index:04d}.png", picture, overwrite=True)
    np.save(folder / "depth.npy", depths, allow_pickle=False)
    if any(each.ids.any() for each in views):
        ids = np.stack([each.ids for each in views]).astype(np.uint8)
        np.save(folder / "ids.npy", ids, allow_pickle=False)


def _rate(text: str) -> Fraction:
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if rate <= 0:
        raise ConfigError(
            explain(
                "--rate",
                expected="frames per second, a number or a fraction",
                got=repr(text),
                do="24 is usual.",
            )
        )
    return rate
