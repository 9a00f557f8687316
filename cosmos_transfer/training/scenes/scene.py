"""What a family builds: solids, a camera, and the labels they carry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from .camera import Camera
from .primitives import Primitive

# CARLA's words where it has them. Ids are shared by the families and never renumbered.
CLASS_NAMES: dict[int, str] = {
    0: "sky",
    1: "floor",
    2: "wall",
    3: "table",
    4: "robot",
    5: "gripper",
    6: "box",
    7: "cylinder",
    8: "ball",
    9: "road",
    10: "lane marking",
    11: "sidewalk",
    12: "terrain",
    13: "building",
    14: "vegetation",
    15: "pole",
    16: "car",
}
CLASS_IDS: dict[str, int] = {name: index for index, name in CLASS_NAMES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoadMarkings:
    """Painted lines along y on the road: x positions in metres."""

    solid_x: tuple[float, ...]
    dashed_x: tuple[float, ...]
    width: float = 0.24
    dash_length: float = 2.0
    dash_period: float = 4.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StreetLamps:
    """Rows of evenly spaced lamps along a road; metres."""

    x: tuple[float, ...]  # of each row
    first_y: tuple[float, ...]
    spacing: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Geometry of one clip. Primitives of one role are neighbours in the list."""

    family: str
    primitives: tuple[Primitive, ...]
    camera: Camera
    markings: RoadMarkings | None = None
    lamps: StreetLamps | None = None

    @property
    def class_ids(self) -> Int[np.ndarray, " p"]:
        """The label of each primitive."""
        return np.array([CLASS_IDS[p.finish.class_name] for p in self.primitives], dtype=np.int32)


def group_by_role(primitives: list[Primitive]) -> tuple[Primitive, ...]:
    """Order primitives so that those of one role are neighbours."""
    return tuple(sorted(primitives, key=lambda primitive: primitive.finish.role))
