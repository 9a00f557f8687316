"""The colour a segmentation class is drawn in: a fixed function of its name.

Chunks, runs and training must agree on colours, so nothing here depends on which classes happen
to be in a clip or in which order they appear.
"""

from __future__ import annotations

import colorsys
import hashlib
import re

Rgb = tuple[int, int, int]

# CARLA 0.9.14 and later, in tag order: (name, colour).
CARLA_CLASSES: tuple[tuple[str, Rgb], ...] = (
    ("unlabeled", (0, 0, 0)),
    ("roads", (128, 64, 128)),
    ("sidewalks", (244, 35, 232)),
    ("building", (70, 70, 70)),
    ("wall", (102, 102, 156)),
    ("fence", (190, 153, 153)),
    ("pole", (153, 153, 153)),
    ("trafficlight", (250, 170, 30)),
    ("trafficsign", (220, 220, 0)),
    ("vegetation", (107, 142, 35)),
    ("terrain", (152, 251, 152)),
    ("sky", (70, 130, 180)),
    ("pedestrian", (220, 20, 60)),
    ("rider", (255, 0, 0)),
    ("car", (0, 0, 142)),
    ("truck", (0, 0, 70)),
    ("bus", (0, 60, 100)),
    ("train", (0, 80, 100)),
    ("motorcycle", (0, 0, 230)),
    ("bicycle", (119, 11, 32)),
    ("static", (110, 190, 160)),
    ("dynamic", (170, 120, 50)),
    ("other", (55, 90, 80)),
    ("water", (45, 60, 150)),
    ("roadline", (157, 234, 50)),
    ("ground", (81, 0, 81)),
    ("bridge", (150, 100, 100)),
    ("railtrack", (230, 150, 140)),
    ("guardrail", (180, 165, 180)),
)

# The order before 0.9.14.
CARLA_CLASSES_OLD: tuple[str, ...] = (
    "unlabeled",
    "building",
    "fence",
    "other",
    "pedestrian",
    "pole",
    "roadline",
    "roads",
    "sidewalks",
    "vegetation",
    "car",
    "wall",
    "trafficsign",
    "sky",
    "ground",
    "bridge",
    "railtrack",
    "guardrail",
    "trafficlight",
    "static",
    "dynamic",
    "water",
    "terrain",
)

_TABLE_TOP: dict[str, Rgb] = {
    "table": (230, 180, 80),
    "floor": (140, 90, 50),
    "robot": (0, 220, 220),
    "gripper": (255, 90, 170),
    "box": (220, 50, 40),
    "cylinder": (40, 200, 90),
    "ball": (50, 110, 255),
}

_SYNONYMS: dict[str, str] = {
    "arm": "robot",
    "robotarm": "robot",
    "hand": "gripper",
    "cube": "box",
    "block": "box",
    "sphere": "ball",
    "can": "cylinder",
    "desk": "table",
    "tabletop": "table",
    "road": "roads",
    "sidewalk": "sidewalks",
    "buildings": "building",
    "house": "building",
    "tree": "vegetation",
    "trees": "vegetation",
    "bush": "vegetation",
    "grass": "terrain",
    "person": "pedestrian",
    "human": "pedestrian",
    "vehicle": "car",
    "vehicles": "car",
    "cars": "car",
    "lane": "roadline",
    "laneline": "roadline",
    "roadlines": "roadline",
    "bike": "bicycle",
    "background": "unlabeled",
    "unlabelled": "unlabeled",
}

KNOWN_COLORS: dict[str, Rgb] = dict(CARLA_CLASSES) | _TABLE_TOP

_HEX_NAME = re.compile(r"#([0-9a-f]{6})")
_WORD = re.compile(r"[a-z]+")
# A part of a known thing ("robot0_link3") stays near that thing's colour, by at most this much.
_PART_SPREAD = 14
_NOT_A_THING = frozenset({"unlabeled", "other", "static", "dynamic", "can", "block", "hand"})


def class_color(name: str) -> Rgb:
    """The RGB colour of a class, from its name alone.

    A known word has its own colour (CARLA's palette, table-top words, common synonyms);
    ``#rrggbb`` is that colour; a longer name that contains a known word ("gripper0_left_palm")
    gets a colour close to that word's; any other name gets a bright colour from a stable hash.
    Only "unlabeled" and its synonyms are black.
    """
    key = name.strip().lower()
    if match := _HEX_NAME.fullmatch(key):
        value = int(match.group(1), 16)
        return (value >> 16, value >> 8 & 255, value & 255)
    joined = re.sub(r"[^a-z0-9]", "", key)
    if color := _known(joined):
        return color
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    for word in _WORD.findall(key):
        whole = _SYNONYMS.get(word, word)
        if whole in KNOWN_COLORS and not {word, whole} & _NOT_A_THING:
            return _near(KNOWN_COLORS[whole], digest)
    return _bright(digest)


def _known(joined: str) -> Rgb | None:
    return KNOWN_COLORS.get(_SYNONYMS.get(joined, joined))


def _near(color: Rgb, digest: bytes) -> Rgb:
    """A colour within the part spread of ``color``, kept apart from it and inside [0, 255]."""
    spread = 2 * _PART_SPREAD + 1
    red, green, blue = (
        min(255 - _PART_SPREAD, max(_PART_SPREAD, channel)) + digest[i] % spread - _PART_SPREAD
        for i, channel in enumerate(color)
    )
    return (red, green, blue)


def _bright(digest: bytes) -> Rgb:
    hue = int.from_bytes(digest[:4], "big") / 2**32
    saturation = 0.45 + 0.55 * digest[4] / 255
    value = 0.55 + 0.45 * digest[5] / 255
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return (round(255 * red), round(255 * green), round(255 * blue))
