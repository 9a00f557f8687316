"""The published figures of the paper beside what the model gives for them."""

from __future__ import annotations

from dataclasses import dataclass

from ngpc.hardware.model import (
    NGPCModel,
    amdahl_ceiling,
    fitted_plateaus,
    fitted_speedups,
    needed_speedup,
    rest_ceiling,
)
from ngpc.hardware.published import (
    CLUSTER_SIZES,
    NERF_REACH_FPS,
    OTHERS_REACH_FPS,
    PUBLISHED,
    UNCONFIRMED,
)

PIXELS_4K, PIXELS_8K = 4, 16  # times those of 1080p
NOT_DERIVABLE = "not derivable"
UNCONFIRMED_INPUT = "input unconfirmed: not a figure of the paper"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLine:
    """One figure: the paper's where it has one, the model's where it follows."""

    name: str
    paper: float | None
    model: float | None
    unit: str
    note: str

    @property
    def deviation_percent(self) -> float | None:
        """The model's deviation from the paper's figure; nothing where either is missing."""
        if self.paper is None or self.model is None:
            return None
        return 100.0 * (self.model / self.paper - 1.0)


def report_lines() -> tuple[ReportLine, ...]:
    """Every line of ``ngpc hardware --report``."""
    return (*_gaps(), *_ceilings(), *_speedups(), *_reach(), *_area_and_power())


def _line(name: str, figure: str | None, model: float | None, unit: str, note: str) -> ReportLine:
    paper = None if figure is None else PUBLISHED[figure].value
    if figure is not None:
        note = f"{PUBLISHED[figure].evidence}; {note}"
    return ReportLine(name=name, paper=paper, model=model, unit=unit, note=note)


def _needed(frame_ms: float, pixels: int, fps: int) -> float:
    return needed_speedup(frame_ms, pixels_ratio=pixels, frames_per_second=fps)


def _gaps() -> tuple[ReportLine, ...]:
    nerf = _needed(PUBLISHED["frame_nerf"].value, PIXELS_4K, 60)
    nvr = _needed(UNCONFIRMED["frame_nvr"].value, PIXELS_4K, 60)
    return (
        _line("gap at 4k60, largest", "gap_largest", nerf, "x", "NeRF, 231 ms per 1080p frame"),
        _line("gap at 4k60, smallest", "gap_smallest", nvr, "x", f"NVR, {UNCONFIRMED_INPUT}"),
    )


def _ceilings() -> tuple[ReportLine, ...]:
    lines = []
    for name, key in (
        ("hash grid", "share_hashgrid"),
        ("dense grid", "share_densegrid"),
        ("low-resolution dense grid", "share_low_resolution_densegrid"),
    ):
        share = PUBLISHED[key].value
        lines += [
            _line(f"ceiling, rest as it is, {name}", None, amdahl_ceiling(share), "x", "1/(1-f)"),
            _line(f"ceiling, rest fused, {name}", None, rest_ceiling(share), "x", "9.94/(1-f)"),
        ]
    return tuple(lines)


def _speedups() -> tuple[ReportLine, ...]:
    lines = []
    for size in CLUSTER_SIZES:
        key, name = f"speedup_{size}", f"speed-up, N={size}"
        if size == CLUSTER_SIZES[-1]:
            ceiling = rest_ceiling(PUBLISHED["share_hashgrid"].value)
            note = "the ceiling; a mean of ratios is at least the ratio of means"
            lines.append(_line(f"{name}, published", key, ceiling, "x", note))
        else:
            note = "kernel speed-ups of this size are not published"
            lines.append(_line(f"{name}, published", key, None, "x", note))
        mean = sum(fitted_speedups(size).values()) / 4
        lines.append(_line(f"{name}, fitted", key, mean, "x", "our fit: no prediction"))
    return tuple(lines)


def _reach() -> tuple[ReportLine, ...]:
    plateaus = fitted_plateaus()
    needs = (
        ("nerf", "4k", PIXELS_4K, NERF_REACH_FPS, PUBLISHED["frame_nerf"].value, ""),
        ("nsdf", "8k", PIXELS_8K, OTHERS_REACH_FPS, UNCONFIRMED["frame_nsdf"].value, "u"),
        ("nvr", "8k", PIXELS_8K, OTHERS_REACH_FPS, UNCONFIRMED["frame_nvr"].value, "u"),
        ("gia", "8k", PIXELS_8K, OTHERS_REACH_FPS, PUBLISHED["frame_gia"].value, ""),
    )
    lines = []
    for name, size, pixels, fps, frame_ms, is_unconfirmed in needs:
        needed = _needed(frame_ms, pixels, fps)
        holds = "holds" if plateaus[name] >= needed else "fails"
        note = f"fitted plateau {plateaus[name]:.1f} >= needed: {holds}"
        if is_unconfirmed:
            note += f"; {UNCONFIRMED_INPUT}"
        lines.append(_line(f"reach, {name} at {size}{fps}, needed", None, needed, "x", note))
    return tuple(lines)


def _area_and_power() -> tuple[ReportLine, ...]:
    lines = []
    for size in CLUSTER_SIZES:
        model = NGPCModel(num_processors=size)
        for name, value in (("area", model.area_percent), ("power", model.power_percent)):
            key = f"{name}_{size}" if f"{name}_{size}" in PUBLISHED else None
            note = "linear in N, from N=64" if key else "linear in N: a prediction"
            lines.append(_line(f"{name}, N={size}", key, value, "%", note))
    return tuple(lines)
