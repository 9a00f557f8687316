"""Neural graphics: hash-grid encodings, small perceptrons, and the fields made of them.

Names are resolved on first use: importing this package imports no torch.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "ngpc.backends.registry": ("BACKENDS", "choose_backend"),
    "ngpc.config": (
        "Activation",
        "AdamConfig",
        "CompositeConfig",
        "CompositePart",
        "FrequencyConfig",
        "GridConfig",
        "IdentityConfig",
        "ImageFitConfig",
        "Interpolation",
        "MlpConfig",
        "OneBlobConfig",
        "Reduction",
        "SphericalHarmonicsConfig",
        "TriangleWaveConfig",
        "encoding_from_json",
        "encoding_to_json",
        "network_from_json",
        "network_to_json",
    ),
    "ngpc.data.control_folders": ("write_control_folder",),
    "ngpc.data.images": ("Image", "read_image", "write_image"),
    "ngpc.data.meshes": ("Mesh", "read_mesh", "write_ply"),
    "ngpc.data.posed_images": ("PosedImages", "load_views", "read_posed_images"),
    "ngpc.data.posed_scenes": ("write_posed_scene",),
    "ngpc.data.volumes": ("Volume", "procedural_cloud", "read_volume"),
    "ngpc.encodings": (
        "Composite",
        "Frequency",
        "HashGrid",
        "Identity",
        "OneBlob",
        "SphericalHarmonics",
        "TriangleWave",
        "make_encoding",
    ),
    "ngpc.errors": (
        "BackendUnavailableError",
        "CheckpointError",
        "ConfigError",
        "MediaError",
        "NgpcError",
        "ShapeError",
    ),
    "ngpc.fields.distance": ("DistanceField",),
    "ngpc.fields.field_files": ("load_field", "save_field"),
    "ngpc.fields.flat": (
        "Encoding",
        "Network",
        "NetworkWithInputEncoding",
        "free_temporary_memory",
        "supports_jit_fusion",
    ),
    "ngpc.fields.image": ("ImageField", "load_image_field", "render_image", "save_image_field"),
    "ngpc.fields.radiance": ("RadianceField",),
    "ngpc.fields.volume": ("VolumeField",),
    "ngpc.geometry.boxes": ("Box",),
    "ngpc.geometry.paths": ("look_at", "orbit", "pinhole"),
    "ngpc.networks.fused_mlp": ("FusedMLP",),
    "ngpc.ops": (
        "apply_mlp",
        "encode_frequency",
        "encode_grid",
        "encode_grid_stochastic",
        "encode_one_blob",
        "encode_spherical_harmonics",
        "encode_triangle_wave",
    ),
    "ngpc.rendering.radiance": ("render_view",),
    "ngpc.rendering.views": ("RenderedView", "render_distance_view", "render_volume_view"),
    "ngpc.serialization": (
        "Snapshot",
        "load_module",
        "read_snapshot",
        "save_module",
        "write_snapshot",
    ),
    "ngpc.shapes": ("GridKind", "GridLayout"),
    "ngpc.tasks.image": ("ImageFit", "fit_image", "image_psnr"),
    "ngpc.tasks.nerf": ("NerfFit", "NerfFitConfig", "fit_nerf", "score_nerf"),
    "ngpc.tasks.sdf": ("SdfFit", "SdfFitConfig", "extract_mesh", "fit_sdf", "score_sdf"),
    "ngpc.tasks.volume": ("VolumeFit", "VolumeFitConfig", "fit_volume", "path_traced_picture"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Import the module a public name lives in, when the name is first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ngpc' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return list(__all__)
