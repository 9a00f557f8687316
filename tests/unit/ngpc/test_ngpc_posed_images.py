"""Cameras, and the three dialects of transforms.json."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ngpc.data.posed_images import read_posed_images
from ngpc.errors import MediaError, ShapeError
from ngpc.geometry.cameras import Intrinsics, camera_rays, opengl_to_opencv

POSE = [[1.0, 0, 0, 2], [0, 1, 0, 3], [0, 0, 1, 4], [0, 0, 0, 1]]


def write_set(folder: Path, name: str = "transforms.json", **keys: Any) -> Path:
    (folder / "images").mkdir(exist_ok=True)
    Image.new("RGB", (8, 6)).save(folder / "images/r_0.png")
    frame = {"file_path": "images/r_0", "transform_matrix": POSE} | keys.pop("frame", {})
    (folder / name).write_text(json.dumps({"frames": [frame], **keys}))
    return folder


def test_nerf_synthetic(tmp_path: Path) -> None:
    posed = read_posed_images(write_set(tmp_path, "transforms_train.json", camera_angle_x=1.0))
    camera = posed.views[0].intrinsics
    assert posed.views[0].path == tmp_path / "images/r_0.png"
    assert (camera.width, camera.height) == (8, 6)
    assert camera.focal_x == camera.focal_y == pytest.approx(4 / math.tan(0.5))
    assert (camera.centre_x, camera.centre_y) == (4, 3)


def test_instant_ngp(tmp_path: Path) -> None:
    posed = read_posed_images(write_set(tmp_path, x_fov=90.0, y_fov=60.0, aabb_scale=4))
    camera = posed.views[0].intrinsics
    assert posed.aabb_scale == 4
    assert camera.focal_x == pytest.approx(4.0)
    assert camera.focal_y == pytest.approx(3 / math.tan(math.pi / 6))


def test_nerfstudio_frames_may_have_their_own_camera(tmp_path: Path) -> None:
    own = {"file_path": "./images/r_0.png", "fl_x": 5.0, "depth_file_path": "images/r_0.png"}
    shared: dict[str, Any] = {"fl_x": 7.0, "fl_y": 9.0, "cx": 3.5, "cy": 2.5, "w": 8, "h": 6}
    shared |= {"camera_model": "OPENCV", "k1": 0.0}
    view = read_posed_images(write_set(tmp_path, frame=own, **shared)).views[0]
    camera = view.intrinsics
    assert (camera.focal_x, camera.focal_y) == (5, 9)
    assert (camera.centre_x, camera.centre_y) == (3.5, 2.5)
    assert view.depth_path == tmp_path / "images/r_0.png"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"fl_x": 5.0, "k1": 0.1}, "k1"),
        ({"fl_x": 5.0, "is_fisheye": True}, "is_fisheye"),
        ({"fl_x": 5.0, "camera_model": "EQUIRECTANGULAR"}, "EQUIRECTANGULAR"),
        ({}, "no field of view"),
        ({"fl_x": "wide"}, "fl_x"),
        ({"camera_angle_x": 4.0}, "between 0 and 180"),
        ({"fl_x": 5.0, "frame": {"file_path": "gone"}}, "a picture gone"),
        ({"fl_x": 5.0, "frame": {"transform_matrix": [[1, 2], [3]]}}, "4x4"),
    ],
)
def test_what_cannot_be_honoured_is_named(keys: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=words):
        read_posed_images(write_set(tmp_path, **keys))


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="neither"):
        read_posed_images(tmp_path)


def test_an_opengl_camera_looks_along_minus_z_and_up_is_up() -> None:
    camera = Intrinsics(height=2, width=2, focal_x=1.0, focal_y=1.0, centre_x=1.0, centre_y=1.0)
    rays = camera_rays(camera, opengl_to_opencv(np.array(POSE)))
    np.testing.assert_allclose(rays.origins, [[2, 3, 4]] * 4)
    np.testing.assert_allclose(np.linalg.norm(rays.directions, axis=-1), 1.0)
    assert (rays.directions[:, 2] < 0).all()
    np.testing.assert_array_equal(np.sign(rays.directions[:, 0]), [-1, 1, -1, 1])
    np.testing.assert_array_equal(np.sign(rays.directions[:, 1]), [1, 1, -1, -1])


def test_a_projected_point_lies_on_its_ray() -> None:
    camera = Intrinsics(height=5, width=7, focal_x=6.0, focal_y=4.0, centre_x=3.0, centre_y=2.2)
    turn = np.eye(4)
    turn[:3, :3] = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    turn[:3, 3] = (1, 2, 3)
    rays = camera_rays(camera, turn)
    points = (rays.origins + 2.5 * rays.directions - turn[:3, 3]) @ turn[:3, :3]
    columns = 6.0 * points[:, 0] / points[:, 2] + 3.0 - 0.5
    rows = 4.0 * points[:, 1] / points[:, 2] + 2.2 - 0.5
    np.testing.assert_allclose(columns.reshape(5, 7), np.tile(np.arange(7), (5, 1)), atol=1e-9)
    np.testing.assert_allclose(rows.reshape(5, 7).T, np.tile(np.arange(5), (7, 1)), atol=1e-9)


def test_a_scaled_rotation_is_refused() -> None:
    camera = Intrinsics(height=1, width=1, focal_x=1.0, focal_y=1.0, centre_x=0.5, centre_y=0.5)
    with pytest.raises(ShapeError, match="without scale"):
        camera_rays(camera, 2.0 * np.eye(4))
