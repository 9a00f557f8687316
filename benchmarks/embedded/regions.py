"""Some controls on things, the others on what is behind them, and the other way round.

The two settings of the paper's table 2 (Cosmos-Transfer1, arXiv:2503.14492): vis and edge on the
foreground with depth and seg on the background, and swapped; every weight 0.5. Foreground is what
stands in the scene: arm, gripper and objects on a table, cars and poles in a street. Clips in which
it is less than 2 % of any frame are left out.

Metrics are taken inside and outside: edges and classes of that region alone; depth fitted on it
alone; for blur SSIM the other region is white in both clips, as in the published evaluation, and
only the region's own pixels are averaged. The diversity is the classifier's distance between the
clip's own prompt and one of another time of day, over the region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8
from skimage.metrics import structural_similarity

from benchmarks.embedded.attributes import distance
from benchmarks.embedded.bench import Bench, Part
from benchmarks.held_out import HeldOutClip
from benchmarks.statistics import mean_over_clips
from cosmos_transfer.controls.edge import canny_edges
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.metrics.control import bilateral, depth_si_rmse, mask_miou
from cosmos_transfer.metrics.predictors import Predictors

FOREGROUND_CLASSES = ("robot", "gripper", "box", "cylinder", "ball", "car", "pole")
LEAST_FOREGROUND = 0.02
WEIGHT = 0.5
SHAPE_CONTROLS, LAYOUT_CONTROLS = ("vis", "edge"), ("depth", "seg")
SETTINGS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "vis + edge in front": (SHAPE_CONTROLS, LAYOUT_CONTROLS),
    "vis + edge behind": (LAYOUT_CONTROLS, SHAPE_CONTROLS),
}
REGIONS = ("foreground", "background")
METRICS = ("blur_ssim", "edge_f1", "depth_si_rmse", "mask_miou", "diversity")
# The paper's table 2, setting by region; LPIPS stands where our diversity does.
PUBLISHED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "blur_ssim": {"foreground": (0.81, 0.68), "background": (0.71, 0.93)},
    "edge_f1": {"foreground": (0.27, 0.17), "background": (0.14, 0.25)},
    "depth_si_rmse": {"foreground": (0.37, 0.38), "background": (0.52, 0.40)},
    "mask_miou": {"foreground": (0.77, 0.77), "background": (0.68, 0.75)},
    "diversity": {"foreground": (0.01, 0.12), "background": (0.33, 0.03)},
}
LEAST_PUBLISHED_CHANGE = 0.02  # a smaller one names no direction at two digits


def measure_regions(bench: Bench, seed: int) -> dict[str, Any] | None:
    """Every metric by setting and region; None where too little stands in the scene."""
    clip = bench.clip(seed)
    front = clip.where(FOREGROUND_CLASSES)
    if front.mean((1, 2)).min() < LEAST_FOREGROUND:
        return None
    regions = dict(zip(REGIONS, (front, ~front), strict=True))
    other = bench.looks(seed)["night" if clip.look.time_of_day != "night" else "day"].prompt
    found: dict[str, Any] = {}
    for name, (in_front, behind) in SETTINGS.items():
        weights = {
            control: {"weight": WEIGHT, "mask": region.astype(np.float32)}
            for controls, region in ((in_front, front), (behind, ~front))
            for control in controls
        }
        frames, others = (
            bench.generate(clip, weights, prompt=prompt) for prompt in (clip.prompt, other)
        )
        try:
            found[name] = region_metrics(frames, clip, regions, bench.predictors)
        except NumericsError:  # a region without an edge
            return None
        pair = [bench.classifier.directions(each) for each in (frames, others)]
        for region, where in regions.items():
            found[name][region]["diversity"] = distance(pair[0], pair[1], where)
    return found


def region_metrics(
    frames: UInt8[np.ndarray, "f h w 3"],
    clip: HeldOutClip,
    regions: Mapping[str, Bool[np.ndarray, "f h w"]],
    predictors: Predictors,
) -> dict[str, dict[str, float]]:
    """The metrics of every region against the clip's controls."""
    edges, wanted = canny_edges(frames), clip.given.edge
    assert wanted is not None
    depth, ids = predictors.depth.predict(frames), predictors.seg.predict(frames)
    found = {}
    for name, where in regions.items():
        found[name] = {
            "blur_ssim": region_blur_ssim(frames, clip.simulator, where),
            "edge_f1": region_edge_f1(edges, wanted[..., 0] > 0, where),
            "depth_si_rmse": depth_si_rmse(depth, np.where(where, clip.depth, np.inf)),
            "mask_miou": mask_miou(ids, np.where(where, clip.class_ids, -1), ignored=(-1,)),
        }
    return found


def region_edge_f1(
    edges: Bool[np.ndarray, "f h w"],
    wanted: Bool[np.ndarray, "f h w"],
    where: Bool[np.ndarray, "f h w"],
) -> float:
    """F1 of strictly coinciding edge pixels of a region.

    Raises:
        NumericsError: No edge is wanted in it.
    """
    if not (wanted & where).any():
        raise NumericsError("edge F1 of a region: expected an edge in the control, got none.")
    both = int((edges & wanted & where).sum())
    return 2 * both / (int((edges & where).sum()) + int((wanted & where).sum()))


def region_blur_ssim(
    frames: UInt8[np.ndarray, "f h w 3"],
    reference: UInt8[np.ndarray, "f h w 3"],
    where: Bool[np.ndarray, "f h w"],
) -> float:
    """SSIM after the blur with everything else white, over the region's own pixels."""
    painted = [
        bilateral(np.where(where[..., None], each, np.uint8(255))) for each in (frames, reference)
    ]
    total = 0.0
    for a, b, mask in zip(*painted, where, strict=True):
        _, per_pixel = structural_similarity(
            a, b, channel_axis=-1, data_range=max(int(b.max()) - int(b.min()), 1), full=True
        )
        total += float(per_pixel[mask].mean())
    return total / len(frames)


def summarise_regions(clips: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means by setting and region, and in which directions the settings differ."""
    rows = {
        setting: {
            region: {
                metric: mean_over_clips([c[setting][region][metric] for c in clips]).as_mapping()
                for metric in METRICS
            }
            for region in REGIONS
        }
        for setting in SETTINGS
    }
    return {"rows": rows, "directions": directions(clips), "num_clips": len(clips)}


def directions(clips: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For every change that the paper's table names: its sign there and here.

    ``change`` is the first setting minus the second, paired by clip.
    """
    first, second = SETTINGS
    found = []
    for metric, by_region in PUBLISHED.items():
        for region, (before, after) in by_region.items():
            published = round(before - after, 2)
            change = mean_over_clips(
                [c[first][region][metric] - c[second][region][metric] for c in clips]
            )
            says = abs(published) >= LEAST_PUBLISHED_CHANGE
            found.append(
                {
                    "metric": metric,
                    "region": region,
                    "published": published,
                    "change": change.as_mapping(),
                    "agrees": bool(published * change.value > 0) if says else None,
                }
            )
    return found


REGIONS_PART = Part(measure=measure_regions, summarise=summarise_regions, most=24)
