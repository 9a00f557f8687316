"""Procedural scenes to learn from: a simulator's view, ground truth, and realistic looks.

The files in data-flow order:

* what there is: `primitives`, `camera`, `scene`; `robot`, `tabletop`; `cars`, `roadside`,
  `driving`
* what is seen of it: `visibility`, `surfaces`, `patterns`, `motion`
* what a look means: `looks` (words), `noise`, `tiles`, `materials`, `lighting`
* colours: `vectors`, `occlusion`, `shadows`, `outdoors`, `shading`, `weather`
* `render` calls them all
"""

from .looks import FAMILIES, VOCABULARY, Look, describe_look, draw_look
from .render import SceneClip, render_clip
from .scene import CLASS_NAMES

__all__ = [
    "CLASS_NAMES",
    "FAMILIES",
    "VOCABULARY",
    "Look",
    "SceneClip",
    "describe_look",
    "draw_look",
    "render_clip",
]
