"""What the embedded model is asked for, line by line, and what a run says to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

FOUR, WITHOUT, TRUE = "all four at 0.25", "no controls", "true render"
OWN_METRIC = {"edge": "edge_f1", "depth": "depth_si_rmse", "seg": "mask_miou", "vis": "blur_ssim"}
NAMES = {
    "edge_f1": "edge F1",
    "mask_miou": "mask mIoU",
    "depth_si_rmse": "depth si-RMSE",
    "blur_ssim": "blur SSIM",
}
LEAST_SHARE, LEAST_OWN_SHARE = 0.80, 0.75
LEAST_SHARPNESS, LARGEST_FLICKER = 0.70, 1.5
LEAST_READ = 0.85
LEAST_DIVERSITY = 0.60
LEAST_OF_SEEDS = 1e-6  # above zero: not the same clip twice
LEAST_KEPT = 0.90
LEAST_ELSEWHERE = 0.50
LONGEST_S, LONGEST_FAST_S = 90.0, 15.0
FEW_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One figure and what it has to reach; without a bar it is only reported."""

    line: str
    what: str
    value: float
    least: float | None = None
    most: float | None = None
    error: float | None = None  # standard error over clips

    @property
    def verdict(self) -> str:
        """Met, or by how much it is missed; nothing where there is no bar."""
        if self.least is None and self.most is None:
            return ""
        short = max(
            0.0 if self.least is None else self.least - self.value,
            0.0 if self.most is None else self.value - self.most,
        )
        return "met" if short <= 0.0 else f"short by {short:.3g}"

    def cells(self) -> list[str]:
        """A row of the table."""
        bar = ""
        if self.least is not None:
            bar = f"at least {self.least:g}"
        elif self.most is not None:
            bar = f"at most {self.most:g}"
        value = f"{self.value:.3f}" + ("" if self.error is None else f" ± {self.error:.3f}")
        return [self.line, self.what, value, bar, self.verdict]


HEADER = ["line", "figure", "value", "bar", ""]


def bars(run: Mapping[str, Any], against: Mapping[str, Any] | None = None) -> list[Bar]:
    """Every bar that a run has figures for.

    Args:
        run: Of ``benchmarks.embedded``.
        against: A run of ``embedded``, where the run is of its distilled variant.
    """
    found: list[Bar] = []
    for part, each in (
        ("table", _fidelity),
        ("sharpness", _sharpness),
        ("classifier", _classifier),
        ("diversity", _diversity),
        ("seeds", _seeds),
        ("regions", _regions),
        ("mujoco", _mujoco),
        ("timing", _timing),
    ):
        if part in run:
            found += each(run[part])
    if against is not None:
        found += kept(run, against)
    return sorted(found, key=lambda bar: bar.line)


def kept(run: Mapping[str, Any], against: Mapping[str, Any]) -> list[Bar]:
    """How much of another run's lines 1 and 3 a run keeps, over the clips that both measured."""
    found = []
    if "table" in run and "table" in against:
        for metric, name in NAMES.items():
            ours, theirs = _over_both(
                run["table"]["per_clip"], against["table"]["per_clip"], partial(_share, metric)
            )
            what = f"kept of the share closed, {name}"
            found.append(Bar(line="6", what=what, value=ours / theirs, least=LEAST_KEPT))
    if "classifier" in run and "classifier" in against:
        ours, theirs = _over_both(
            run["classifier"]["per_clip"], against["classifier"]["per_clip"], _read
        )
        what = "kept of the attributes read"
        found.append(Bar(line="6", what=what, value=ours / theirs, least=LEAST_KEPT))
    return found


def _over_both(
    run: Mapping[str, Any],
    against: Mapping[str, Any],
    figure: Callable[[Mapping[str, Any], int], float],
) -> tuple[float, float]:
    """A figure of either run over the first clips, as many as both have."""
    num_clips = min(_num_clips(each) for each in (run, against))
    return figure(run, num_clips), figure(against, num_clips)


def _num_clips(per_clip: Mapping[str, Any]) -> int:
    first = next(iter(per_clip.values()))
    return len(next(iter(first.values())) if isinstance(first, Mapping) else first)


def _share(metric: str, per_clip: Mapping[str, Any], num_clips: int) -> float:
    four, without, true = (
        fmean(per_clip[name][metric][:num_clips]) for name in (FOUR, WITHOUT, TRUE)
    )
    return (four - without) / (true - without)


def _read(per_clip: Mapping[str, Any], num_clips: int) -> float:
    return fmean(per_clip["outputs"][:num_clips]) / fmean(per_clip["true_renders"][:num_clips])


def _estimate(line: str, what: str, estimate: Mapping[str, float], **bar: float) -> Bar:
    return Bar(
        line=line, what=what, value=estimate["value"], error=estimate["standard_error"], **bar
    )


def _fidelity(table: Mapping[str, Any]) -> Iterator[Bar]:
    shares = table["shares"]
    if FOUR in shares:
        for metric, name in NAMES.items():
            what = f"four controls close, {name}"
            yield _estimate("1", what, shares[FOUR][metric], least=LEAST_SHARE)
        yield _estimate(
            "1", "four controls close, edge F1 within 1 px", shares[FOUR]["edge_f1_1px"]
        )
        what = "four controls close, blur SSIM with the true render"
        yield _estimate("1", what, shares[FOUR]["blur_ssim_render"])
    alone = {name: f"{name} at 1" for name in OWN_METRIC if f"{name} at 1" in shares}
    for name, row in alone.items():
        metric = OWN_METRIC[name]
        what = f"{name} alone closes, {NAMES[metric]}"
        yield _estimate("1", what, shares[row][metric], least=LEAST_OWN_SHARE)
    if len(alone) == len(OWN_METRIC):
        for name, metric in OWN_METRIC.items():
            ahead = shares[alone[name]][metric]["value"] - max(
                shares[row][metric]["value"] for other, row in alone.items() if other != name
            )
            what = f"{name} ahead of the other controls alone, {NAMES[metric]}"
            yield Bar(line="1", what=what, value=ahead, least=0.0)


def _sharpness(part: Mapping[str, Any]) -> Iterator[Bar]:
    yield _estimate(
        "2",
        "gradient energy over the true render's",
        part["gradient_energy"]["ratio"],
        least=LEAST_SHARPNESS,
    )
    yield _estimate(
        "2", "flicker over the true render's", part["flicker"]["ratio"], most=LARGEST_FLICKER
    )


def _classifier(part: Mapping[str, Any]) -> Iterator[Bar]:
    yield _estimate("3", "attributes read off true renders", part["accuracy"]["true_renders"])
    yield _estimate("3", "accuracy on outputs over true renders'", part["ratio"], least=LEAST_READ)


def _diversity(part: Mapping[str, Any]) -> Iterator[Bar]:
    yield _estimate(
        "4", "six prompts, distance over true renders'", part["ratio"], least=LEAST_DIVERSITY
    )


def _seeds(part: Mapping[str, Any]) -> Iterator[Bar]:
    yield _estimate("4", "six seeds, mean distance", part["distance"], least=LEAST_OF_SEEDS)


def _regions(part: Mapping[str, Any]) -> Iterator[Bar]:
    named = [each for each in part["directions"] if each["agrees"] is not None]
    agree = sum(each["agrees"] for each in named)
    yield Bar(
        line="5",
        what=f"directions of table 2 that agree, of {len(named)}",
        value=float(agree),
        least=float(len(named)),
    )


def _mujoco(part: Mapping[str, Any]) -> Iterator[Bar]:
    for metric, estimate in part["ratios"].items():
        is_bar = metric in ("edge_f1", "mask_miou")
        name = "edge F1 within 1 px" if metric == "edge_f1_1px" else NAMES[metric]
        what = f"MuJoCo scenes, {name} over the simulator's own frames'"
        yield _estimate("8", what, estimate, **({"least": LEAST_ELSEWHERE} if is_bar else {}))


def _timing(part: Mapping[str, Any]) -> Iterator[Bar]:
    is_fast = part["steps"] <= FEW_STEPS
    what = f"seconds for {part['num_frames']} frames, {part['steps']} steps"
    for name in ("size", "guidance_scale", "threads"):
        if name in part:  # earlier runs did not say it
            what += f", {name.removesuffix('_scale')} {part[name]}"
    yield Bar(
        line="time", what=what, value=part["seconds"], most=LONGEST_FAST_S if is_fast else LONGEST_S
    )
