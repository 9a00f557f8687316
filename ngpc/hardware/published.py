"""What is known of the NGPC paper (arXiv 2303.05735), each figure with where it is known from.

Only figures that the abstract states, or that analyses of the paper state alike, stand in
:data:`PUBLISHED`. One frame time is remembered by nobody who could confirm it; it stands apart, in
:data:`UNCONFIRMED`, and is never printed as the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CLUSTER_SIZES = (8, 16, 32, 64)
APPLICATIONS = ("nerf", "nsdf", "nvr", "gia")


class Evidence(StrEnum):
    """Where a figure is known from."""

    ABSTRACT = "abstract"
    ANALYSES = "analyses of the paper"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number, its unit and where it is known from."""

    value: float
    unit: str
    evidence: Evidence


def _abstract(value: float, unit: str) -> Figure:
    return Figure(value=value, unit=unit, evidence=Evidence.ABSTRACT)


def _analyses(value: float, unit: str) -> Figure:
    return Figure(value=value, unit=unit, evidence=Evidence.ANALYSES)


PUBLISHED: dict[str, Figure] = {
    "gap_largest": _abstract(55.50, "x"),
    "gap_smallest": _abstract(1.51, "x"),
    "share_hashgrid": _abstract(0.7237, "of the frame"),
    "share_densegrid": _abstract(0.60, "of the frame"),
    "share_low_resolution_densegrid": _abstract(0.5996, "of the frame"),
    "rest_fusion": _abstract(9.94, "x"),
    "speedup_8": _abstract(12.0, "x"),
    "speedup_16": _abstract(20.0, "x"),
    "speedup_32": _abstract(33.0, "x"),
    "speedup_64": _abstract(39.0, "x"),
    "speedup_largest": _abstract(58.0, "x"),
    "share_encoding": _analyses(0.4024, "of the frame"),
    "share_mlp": _analyses(0.3212, "of the frame"),
    "kernel_encoding_64": _analyses(246.0, "x"),
    "kernel_mlp_64": _analyses(1232.0, "x"),
    "frame_nerf": _analyses(231.0, "ms"),
    "frame_gia": _analyses(2.12, "ms"),
    "area_8": _analyses(4.52, "% of an RTX 3090"),
    "area_64": _analyses(36.18, "% of an RTX 3090"),
    "power_8": _analyses(2.75, "% of an RTX 3090"),
    "power_64": _analyses(22.06, "% of an RTX 3090"),
}
"""The paper's figures. Frames are 1080p on an RTX 3090, hash grid."""

UNCONFIRMED: dict[str, Figure] = {
    "frame_nvr": Figure(value=6.32, unit="ms", evidence=Evidence.UNCONFIRMED),
    "frame_nsdf": Figure(value=27.87, unit="ms", evidence=Evidence.UNCONFIRMED),
}
"""Frame times that no text at hand states; 6.32 ms agrees with the abstract's smallest gap."""

NERF_REACH_FPS = 30  # at 3840x2160 (abstract)
OTHERS_REACH_FPS = 120  # at 7680x4320 (abstract)
