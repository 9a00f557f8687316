"""``ngpc hardware``."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
from pathlib import Path

from ngpc.errors import ConfigError, MediaError, explain
from ngpc.hardware.model import Breakdown, NGPCModel
from ngpc.hardware.report import NOT_DERIVABLE, report_lines

PARTS = ("encoding_s", "mlp_s", "rest_s")


def hardware_command(arguments: argparse.Namespace) -> int:
    """Print the report, or what a cluster would give for frames that were or are measured."""
    if arguments.report:
        _print_report()
        return 0
    model = NGPCModel(num_processors=arguments.processors, calibration=arguments.calibration)
    if arguments.measure is not None:
        breakdowns = measured_breakdowns(arguments)
        parts = {name: dataclasses.asdict(each) for name, each in breakdowns.items()}
        print(json.dumps(parts, indent=1))
    else:
        breakdowns = read_breakdowns(arguments.breakdown)
    for name, breakdown in breakdowns.items():
        frame = model.frame_time(breakdown)
        print(
            f"{name}: {1000 * breakdown.total_s:.4g} ms -> {1000 * frame.seconds:.4g} ms, "
            f"{frame.speedup:.3g}x, bound by {frame.bound_by}"
        )
    print(
        f"{arguments.calibration}, N={model.num_processors}: kernels shrink as the paper's do on "
        f"an RTX 3090; area +{model.area_percent:.2f} %, power +{model.power_percent:.2f} % of it"
    )
    return 0


def read_breakdowns(path: Path) -> dict[str, Breakdown]:
    """Measured frames by name, from JSON; refuses other keys and other types."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise MediaError(
            explain(str(path), expected="a JSON file", got=str(error), do="Mend the file.")
        ) from error
    if not isinstance(content, dict) or not content:
        content = {"(the file)": content}
    for name, parts in content.items():
        is_known = isinstance(parts, dict) and set(parts) == set(PARTS)
        if not is_known or any(
            isinstance(parts[part], bool) or not isinstance(parts[part], int | float)
            for part in PARTS
        ):
            raise ConfigError(
                explain(
                    f"{path}, {name}",
                    expected=f"numbers under {', '.join(PARTS)}",
                    got=json.dumps(parts)[:80],
                    do="Give the seconds of one frame, part by part.",
                )
            )
    return {
        name: Breakdown(**{part: float(parts[part]) for part in PARTS})
        for name, parts in content.items()
    }


def measured_breakdowns(arguments: argparse.Namespace) -> dict[str, Breakdown]:
    """One frame of every field, measured here; the name of each is its folder's and kind's.

    Raises:
        CheckpointError: a file is no field.
    """
    from ngpc.cli.cameras import pose_around
    from ngpc.cli.devices import check_placement
    from ngpc.cli.render import SCENES, SceneField, scene_renderer
    from ngpc.fields.field_files import format_of, load_field
    from ngpc.fields.image import load_image_field, render_image
    from ngpc.fields.volume import VolumeField
    from ngpc.geometry.paths import pinhole
    from ngpc.hardware.measured import measure_frame

    check_placement(arguments.device, arguments.backend)
    height, width = arguments.height, arguments.width
    kinds = {kind.FORMAT: kind for kind in SCENES}
    found = {}
    for path in arguments.measure:
        kind = kinds.get(format_of(path) or "")
        name = f"{path.parent.name or path.stem}, {width}x{height}"
        if kind is None:
            image = load_image_field(path, backend=arguments.backend).to(arguments.device)
            found[name] = measure_frame(
                image, functools.partial(render_image, image, height=height, width=width)
            )
            continue
        field: SceneField = load_field(kind, path, backend=arguments.backend).to(arguments.device)
        render = scene_renderer(field, (0.0, 0.0, 0.0))
        camera = pinhole(height=height, width=width, horizontal_fov_deg=40.0)
        box = None if isinstance(field, VolumeField) else field.box
        pose = pose_around(box, elevation_deg=25.0)
        found[name] = measure_frame(field, functools.partial(render, camera, pose))
    return found


def _print_report() -> None:
    header = f"{'figure':<47} {'paper':>7} {'model':>7} {'off':>7}  source; note"
    print(header)
    for line in report_lines():
        paper = "-" if line.paper is None else f"{line.paper:.2f}"
        if line.model is None:
            print(f"{line.name:<47} {paper:>7} {NOT_DERIVABLE:>15}  {line.note}")
            continue
        off = line.deviation_percent
        deviation = "-" if off is None else f"{off:+.1f}%"
        print(f"{line.name:<47} {paper:>7} {line.model:>7.2f} {deviation:>7}  {line.note}")
