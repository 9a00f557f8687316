"""An arm on a table in MuJoCo: scenes of a simulator that the embedded model was never trained on.

The model is written here, of MuJoCo's own primitives, lights and built-in textures; shapes, sizes,
colours, shadows and the renderer are none of ``training.scenes``'s. Geoms are named
``<class>/<part>``, in the class names that the checkpoint knows. The arm is moved by its joints'
angles, without dynamics; the camera circles slowly.

Nothing here imports MuJoCo but :func:`render_scene` and :func:`why_not`, which draw off-screen:
``MUJOCO_GL`` is ``egl`` unless set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int32, UInt8

from cosmos_transfer.shapes import Size
from cosmos_transfer.training.scenes import CLASS_NAMES

JOINTS = ("yaw", "shoulder", "elbow", "wrist")
RESTING = np.array([0.0, 0.5, 1.1, 1.0])
REACH = np.array([0.9, 0.35, 0.4, 0.4])  # radians either way
CLASS_IDS = {name: number for number, name in CLASS_NAMES.items()}
COLOURS = ((0.8, 0.2, 0.15), (0.2, 0.35, 0.75), (0.2, 0.6, 0.3), (0.9, 0.75, 0.2))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """MuJoCo's free camera: metres and degrees, per frame."""

    target: tuple[float, float, float]
    distance: float
    elevation: float
    azimuth: Float[np.ndarray, " f"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """What the simulator gives."""

    frames: UInt8[np.ndarray, "f h w 3"]
    depth: Float[np.ndarray, "f h w"]  # metres along the axis, infinite where nothing is
    class_ids: Int32[np.ndarray, "f h w"]


def scene_xml(rng: np.random.Generator) -> str:
    """One scene as MJCF: room, table, arm and three things on the table."""
    things = []
    for index, place in enumerate(((-0.32, -0.12), (0.3, -0.2), (0.22, 0.2))):
        kind = ("box", "cylinder", "sphere")[int(rng.integers(3))]
        size = float(rng.uniform(0.045, 0.075))
        x, y = (each + float(rng.uniform(-0.06, 0.06)) for each in place)
        name = {"box": "box", "cylinder": "cylinder", "sphere": "ball"}[kind]
        extents = {
            "box": f"{size} {size} {size}",
            "cylinder": f"{0.8 * size} {size}",
            "sphere": f"{size}",
        }[kind]
        colour = " ".join(f"{c}" for c in COLOURS[(index + int(rng.integers(4))) % 4])
        things.append(
            f'<geom name="{name}/{index}" type="{kind}" size="{extents}" '
            f'pos="{x:.4f} {y:.4f} {size:.4f}" rgba="{colour} 1"/>'
        )
    legs = "".join(
        f'<geom name="table/leg {x} {y}" type="box" size="0.04 0.04 0.35" '
        f'pos="{0.75 * x} {0.5 * y} -0.4" rgba="0.4 0.4 0.4 1"/>'
        for x in (-1, 1)
        for y in (-1, 1)
    )
    grey = float(rng.uniform(0.55, 0.9))
    arm = f"{grey} {grey} {grey} 1"
    return f"""
<mujoco model="arm on a table">
  <compiler angle="radian"/>
  <visual><global offwidth="1024" offheight="1024" fovy="45"/></visual>
  <asset>
    <texture name="floor" type="2d" builtin="checker" width="256" height="256"
      rgb1="0.32 0.32 0.34" rgb2="0.42 0.42 0.44"/>
    <material name="floor" texture="floor" texrepeat="10 10"/>
  </asset>
  <worldbody>
    <light pos="-1 -1.5 2.5" dir="0.4 0.6 -1" diffuse="0.7 0.7 0.7"/>
    <light pos="1.5 -1 2" dir="-0.6 0.4 -0.8" diffuse="0.3 0.3 0.3" castshadow="false"/>
    <geom name="floor/0" type="plane" size="6 6 0.1" pos="0 0 -0.75" material="floor"/>
    <geom name="wall/0" type="box" size="6 0.05 3" pos="0 1.3 1" rgba="0.72 0.72 0.7 1"/>
    <geom name="table/top" type="box" size="0.85 0.6 0.025" pos="0 0 -0.025"
      rgba="0.62 0.58 0.53 1"/>
    {legs}
    {"".join(things)}
    <body name="base" pos="0 0.3 0">
      <geom name="robot/base" type="cylinder" size="0.1 0.06" pos="0 0 0.06"
        rgba="0.25 0.25 0.27 1"/>
      <body pos="0 0 0.12">
        <joint name="yaw" axis="0 0 1"/>
        <geom name="robot/turret" type="sphere" size="0.085" rgba="{arm}"/>
        <body>
          <joint name="shoulder" axis="1 0 0"/>
          <geom name="robot/upper" type="capsule" fromto="0 0 0 0 0 0.38" size="0.05"
            rgba="{arm}"/>
          <body pos="0 0 0.38">
            <joint name="elbow" axis="1 0 0"/>
            <geom name="robot/fore" type="capsule" fromto="0 0 0 0 0 0.32" size="0.04"
              rgba="0.9 0.5 0.15 1"/>
            <body pos="0 0 0.32">
              <joint name="wrist" axis="1 0 0"/>
              <geom name="gripper/palm" type="box" size="0.05 0.03 0.025" pos="0 0 0.04"
                rgba="0.2 0.2 0.22 1"/>
              <geom name="gripper/left" type="box" size="0.01 0.02 0.04" pos="-0.04 0 0.1"
                rgba="0.2 0.2 0.22 1"/>
              <geom name="gripper/right" type="box" size="0.01 0.02 0.04" pos="0.04 0 0.1"
                rgba="0.2 0.2 0.22 1"/>
            </body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def arm_path(rng: np.random.Generator, num_frames: int) -> Float[np.ndarray, "f j"]:
    """Joint angles of every frame: from one pose on the way to another, smoothly."""
    start, end = (RESTING + rng.uniform(-1.0, 1.0, 4) * REACH for _ in range(2))
    share = 0.5 - 0.5 * np.cos(np.pi * np.arange(num_frames) / 32.0)
    return start + (end - start) * share[:, None]


def draw_view(rng: np.random.Generator, num_frames: int) -> View:
    """A camera in front of the table that circles by half a degree a frame, or stands still."""
    rate = float(rng.choice([-0.5, 0.0, 0.5]))
    return View(
        target=(0.0, 0.05, 0.15),
        distance=float(rng.uniform(1.9, 2.4)),
        elevation=float(rng.uniform(-38.0, -20.0)),
        azimuth=90.0 + float(rng.uniform(-25.0, 25.0)) + rate * np.arange(num_frames),
    )


def class_of(geom: str) -> int:
    """The class id of a geom, by its name.

    Raises:
        KeyError: The checkpoint knows no such class.
    """
    return CLASS_IDS[geom.partition("/")[0]]


def render_scene(number: int, size: Size, num_frames: int) -> Recording:
    """Render a scene off-screen; ``number`` decides all of it."""
    mujoco = _import_mujoco()
    rng = np.random.default_rng(number)
    model = mujoco.MjModel.from_xml_string(scene_xml(rng))
    data = mujoco.MjData(model)
    angles, view = arm_path(rng, num_frames), draw_view(rng, num_frames)
    table = np.array([class_of(model.geom(index).name) for index in range(model.ngeom)])
    addresses = [model.joint(name).qposadr[0] for name in JOINTS]
    camera = mujoco.MjvCamera()
    frames, depths, ids = [], [], []
    renderer = mujoco.Renderer(model, size.height, size.width)
    try:
        for index in range(num_frames):
            data.qpos[addresses] = angles[index]
            mujoco.mj_forward(model, data)
            camera.lookat[:] = view.target
            camera.distance, camera.elevation = view.distance, view.elevation
            camera.azimuth = view.azimuth[index]
            renderer.update_scene(data, camera)
            frames.append(renderer.render().copy())
            renderer.enable_segmentation_rendering()
            geoms = renderer.render()[..., 0].copy()
            renderer.disable_segmentation_rendering()
            renderer.enable_depth_rendering()
            depth = renderer.render().copy()
            renderer.disable_depth_rendering()
            is_seen = geoms >= 0
            ids.append(np.where(is_seen, table[np.maximum(geoms, 0)], CLASS_IDS["sky"]))
            depths.append(np.where(is_seen, depth, np.inf))
    finally:
        renderer.close()
    return Recording(
        frames=np.stack(frames),
        depth=np.stack(depths).astype(np.float32),
        class_ids=np.stack(ids).astype(np.int32),
    )


def why_not() -> str | None:
    """Why scenes cannot be rendered on this machine; None where they can."""
    try:
        render_scene(0, Size(8, 8), 1)
    except Exception as error:  # whatever a missing library or display comes to
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None


def _import_mujoco() -> Any:
    os.environ.setdefault("MUJOCO_GL", "egl")  # read when it is imported
    import mujoco

    return mujoco
