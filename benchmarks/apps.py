"""The four applications of ngpc on this machine: how good, how fast, against the goals.

    python -m benchmarks.apps                    all parts
    python -m benchmarks.apps --only sdf nerf

``image``   The 512x512 photograph that scikit-image brings, until 35 dB over all its pixels.
``large``   A 9500x9500 image for some steps, and the peak of the process's memory.
``sdf``     Three solids of this repository: intersection over union on a grid of 128^3, distance
            between the surfaces, median angle between the normals.
``nerf``    60 posed pictures of 128x128 of a table-top scene of this repository: PSNR, SSIM, depth
            and ids on 8 held-out views; then the same steps on the backend that ``auto`` takes and
            on the reference, plain PyTorch, by turns: the ratio of the processor times of a step.
``volume``  A cloud of this repository, against 256 paths a pixel through the same volume.

Seconds are those of one run, on whatever else the machine does: wall-clock and processor time.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import skimage.data

from benchmarks.results_file import hardware, write_results
from ngpc.backends.registry import choose_backend
from ngpc.config import ImageFitConfig
from ngpc.data.images import Image
from ngpc.data.posed_images import PosedImages, read_posed_images
from ngpc.data.posed_scenes import write_posed_scene
from ngpc.data.solids import SOLIDS, solid_mesh
from ngpc.data.volumes import procedural_cloud
from ngpc.geometry.paths import look_at, pinhole
from ngpc.rendering.views import render_volume_view
from ngpc.tasks.image import fit_image, psnr
from ngpc.tasks.nerf import NerfFitConfig, fit_nerf, score_nerf
from ngpc.tasks.sdf import SdfFitConfig, fit_sdf, score_sdf
from ngpc.tasks.volume import VolumeFitConfig, fit_volume, path_traced_picture

PARTS = ("image", "large", "sdf", "nerf", "volume")
LARGE_SIZE, LARGE_STEPS = 9500, 20
COMPARED_STEPS, COUNTED_STEPS = 80, 16  # occupancy settles before the last ones, which count


class Clock:
    """Wall-clock and processor seconds since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        return {
            "wall_s": round(time.perf_counter() - self.wall, 2),
            "cpu_s": round(time.process_time() - self.cpu, 2),
        }


def image_part(steps: int | None) -> dict[str, Any]:
    photograph = skimage.data.astronaut().astype(np.float32) / 255.0
    clock = Clock()
    fit = fit_image(Image(rgb_srgb=photograph), ImageFitConfig(num_steps=steps or 800))
    return {"psnr_db": fit.psnr_db, "num_steps": fit.config.num_steps, **clock.read()}


def large_part(steps: int | None) -> dict[str, Any]:
    """In a process of its own, whose memory is that of this part alone."""
    command = [sys.executable, "-m", "benchmarks.apps", "--large-child", str(steps or LARGE_STEPS)]
    clock = Clock()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    psnr_db, peak_bytes = (float(value) for value in output.split()[-2:])
    return {
        "psnr_db": psnr_db,
        "num_steps": steps or LARGE_STEPS,
        "peak_gb": round(peak_bytes / 1e9, 2),
        "wall_s": clock.read()["wall_s"],
    }


def large_child(steps: int) -> None:
    rows = np.linspace(0.0, 60.0, LARGE_SIZE, dtype=np.float32)
    image = np.empty((LARGE_SIZE, LARGE_SIZE, 3), dtype=np.float32)
    for channel in range(3):
        np.multiply(
            np.sin(rows * (channel + 1))[:, None], np.cos(rows)[None], out=image[:, :, channel]
        )
    image *= 0.5
    image += 0.5
    fit = fit_image(Image(rgb_srgb=image), ImageFitConfig(num_steps=steps))
    print(fit.psnr_db, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def sdf_part(steps: int | None) -> dict[str, Any]:
    results = {}
    for name in SOLIDS:
        mesh = solid_mesh(name)
        clock = Clock()
        config = SdfFitConfig()
        fit = fit_sdf(mesh, config if steps is None else replace(config, num_steps=steps))
        spent = clock.read()
        results[name] = asdict(score_sdf(fit.field, mesh)) | {
            "num_faces": len(mesh.faces),
            "num_steps": fit.config.num_steps,
            **spent,
        }
    return results


def nerf_part(steps: int | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        data = write_posed_scene(Path(folder) / "scene")
        posed = read_posed_images(data)
        clock = Clock()
        config = NerfFitConfig()
        fit = fit_nerf(posed, config if steps is None else replace(config, num_steps=steps))
        spent = clock.read()
        scores = score_nerf(fit.field, read_posed_images(data / "transforms_test.json"))
        return asdict(scores) | {
            "num_steps": fit.config.num_steps,
            "num_samples": fit.num_samples,
            **spent,
            "steps_by_backend": step_seconds(posed),
        }


def step_seconds(posed: PosedImages) -> dict[str, Any]:
    """Processor seconds of a step on the default backend and on plain PyTorch, and their ratio."""
    default = choose_backend("auto", "cpu").name
    found = {name: seconds_on(posed, name) for name in (default, "reference")}
    return {"cpu_s": found, "ratio": found["reference"] / found[default]}


def seconds_on(posed: PosedImages, backend: str) -> float:
    """Processor seconds of one of the last steps of a short training."""
    marks: list[float] = []
    fit_nerf(
        posed,
        NerfFitConfig(num_steps=COMPARED_STEPS),
        backend=backend,
        on_step=lambda *_: marks.append(time.process_time()),
    )
    return median(after - before for before, after in pairwise(marks[-COUNTED_STEPS:]))


def volume_part(steps: int | None) -> dict[str, Any]:
    cloud = procedural_cloud()
    clock = Clock()
    config = VolumeFitConfig()
    fit = fit_volume(cloud, config if steps is None else replace(config, num_steps=steps))
    spent = clock.read()
    camera = pinhole(height=96, width=96, horizontal_fov_deg=40.0)
    pose = look_at((0.1, -1.2, 0.9), (0.5, 0.5, 0.5))
    truth = path_traced_picture(cloud, camera, pose, paths_per_pixel=256)
    view = render_volume_view(fit.field, camera, pose)
    return {
        "psnr_db": psnr(view.rgb_srgb, truth),
        "num_steps": fit.config.num_steps,
        **spent,
    }


RUNS: dict[str, Callable[[int | None], dict[str, Any]]] = {
    "image": image_part,
    "large": large_part,
    "sdf": sdf_part,
    "nerf": nerf_part,
    "volume": volume_part,
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--steps", type=int, help="of every part, instead of its own number")
    parser.add_argument("--dry-run", action="store_true", help="write no results file")
    parser.add_argument("--large-child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.large_child is not None:
        large_child(arguments.large_child)
        return
    results: dict[str, Any] = {
        "benchmark": "apps",
        "hardware": hardware(),
        "backend": choose_backend("auto", "cpu").name,
    }
    for name in arguments.only:
        results[name] = RUNS[name](arguments.steps)
        print(name, results[name], flush=True)
    if not arguments.dry_run:
        print(write_results(results))


if __name__ == "__main__":
    main()
