"""Procedural scenes to learn from: a simulator's view, ground truth, and realistic looks.

The files in data-flow order: `noise` and `tiles` (textures), `primitives`, `camera`, `scene`,
`tabletop` and `driving` (what is there), `visibility` and `surfaces` (what is seen), `patterns` and
`motion` (ground truth), `looks` (words), `materials` and `lighting` (what words mean), `occlusion`,
`shadows`, `shading`, `weather`, and `render`, which calls them all.
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
