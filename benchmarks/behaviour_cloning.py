"""What augmentation is for: a policy that works under looks nobody recorded.

    python -m benchmarks.behaviour_cloning             prints both errors and their ratio

A robot arm at a table is recorded in one room, under one look, with its three joint angles. The
embedded model makes other looks of every episode from the simulator's edges, depth, classes and
blurred colours. A small network learns the joint angles from single pictures: once from the plain
recordings, once from these and their looks; both with colour jitter, from the same start and for as
many steps. Both are judged on other episodes of the same robot, rendered under looks that no
training picture was rendered under or asked for.

The error is the mean absolute error of the angles in degrees. Episodes, looks, noise and networks
follow from seeds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from benchmarks.results_file import hardware, write_results
from cosmos_transfer import augment_episode
from cosmos_transfer.pipeline import TransferPipeline
from cosmos_transfer.training.scenes import CLASS_NAMES, Look
from cosmos_transfer.training.scenes.camera import Camera, cast_rays, look_at
from cosmos_transfer.training.scenes.lighting import choose_lighting
from cosmos_transfer.training.scenes.materials import choose_materials
from cosmos_transfer.training.scenes.occlusion import ambient_reaching
from cosmos_transfer.training.scenes.patterns import find_patterns, label_pixels
from cosmos_transfer.training.scenes.primitives import Finish, Primitive, Shape, place
from cosmos_transfer.training.scenes.robot import GRIPPER_LENGTH_M, Arm, build_arm
from cosmos_transfer.training.scenes.scene import Scene, group_by_role
from cosmos_transfer.training.scenes.shading import (
    Geometry,
    base_albedo,
    shade_look,
    shade_simulator,
)
from cosmos_transfer.training.scenes.surfaces import gather, resolve
from cosmos_transfer.training.scenes.tabletop import (
    FLOOR,
    FLOOR_Z,
    OBJECT_RGB,
    TABLE,
    WALL,
    Task,
)
from cosmos_transfer.training.scenes.visibility import trace

SIZE = (64, 96)
NUM_FRAMES = 9
HALF_TABLE = (0.95, 0.65)
ARM = Arm(
    base=np.array([0.1, 0.35, 0.0]),
    shoulder_height=0.26,
    upper=0.48,
    fore=0.46,
    radius=0.055,
    rgb=(0.93, 0.50, 0.12),
)
# The room that was recorded, as (table, wall, time of day); the looks that are made of it; and
# those that the networks are judged under. No look is in two of the lists.
RECORDED = ("wood", "plaster", "day")
MADE = (
    ("marble", "brick", "night"),
    ("metal", "tiled", "dusk"),
    ("cloth", "painted", "day"),
    ("wood", "brick", "dusk"),
    ("metal", "plaster", "night"),
    ("cloth", "tiled", "night"),
    ("marble", "plaster", "day"),
    ("marble", "painted", "dusk"),
)
UNSEEN = (
    ("marble", "tiled", "day"),
    ("cloth", "brick", "dusk"),
    ("metal", "painted", "night"),
    ("wood", "tiled", "night"),
    ("cloth", "plaster", "dusk"),
    ("metal", "brick", "day"),
)
WORDS = {"day": "in daylight", "dusk": "at dusk", "night": "at night"}
CONTROLS = {"edge": 0.25, "depth": 0.25, "seg": 0.25, "vis": 0.25}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """One episode: its pictures under some looks, its ground truth and its actions."""

    simulator: UInt8[np.ndarray, "f h w 3"]
    looks: tuple[UInt8[np.ndarray, "f h w 3"], ...]
    depth: Float[np.ndarray, "f h w"]
    class_ids: np.ndarray
    actions: Float[np.ndarray, "f 3"]  # joint angles in radians


def record(seed: int, looks: Sequence[Look]) -> Recording:
    """One episode of the robot in its room, rendered under these looks."""
    rng = np.random.default_rng(seed)
    task = _draw_task(rng)
    tool = task.tool_path(NUM_FRAMES)
    parts = [*_room(), *build_arm(ARM, tool, 0.06), *_objects(rng, task)]
    scene = Scene(family="tabletop", primitives=group_by_role(parts), camera=_camera())
    rays = cast_rays(scene.camera, *SIZE)
    visibility = trace(scene, rays)
    surfaces = gather(scene, rays, visibility)
    patterns = find_patterns(scene, surfaces, rays)
    geometry = Geometry(
        scene=scene,
        surfaces=surfaces,
        patterns=patterns,
        base=base_albedo(scene, surfaces, patterns),
        ambient=ambient_reaching(scene, surfaces),
    )
    rendered = []
    for look in looks:
        stream = np.random.default_rng(look.variation)
        materials, lighting = choose_materials(look, stream), choose_lighting(look, stream)
        shaded = shade_look(geometry, look, lighting, materials)
        rendered.append(resolve(shaded, surfaces, visibility))
    return Recording(
        simulator=resolve(shade_simulator(geometry), surfaces, visibility),
        looks=tuple(rendered),
        depth=visibility.depth[0].astype(np.float32),
        class_ids=label_pixels(scene, rays, visibility).astype(np.int32),
        actions=joint_angles(ARM, tool),
    )


def joint_angles(arm: Arm, tool: Float[np.ndarray, "f 3"]) -> Float[np.ndarray, "f 3"]:
    """Turn of the base, rise of the upper arm and bend of the elbow, in radians."""
    shoulder = arm.base + np.array([0.0, 0.0, arm.shoulder_height])
    offset = tool + np.array([0.0, 0.0, GRIPPER_LENGTH_M]) - shoulder
    flat = np.hypot(offset[:, 0], offset[:, 1])
    span = np.minimum(np.hypot(flat, offset[:, 2]), arm.reach)
    inner = np.arccos((arm.upper**2 + span**2 - arm.fore**2) / (2 * arm.upper * span))
    bend = np.arccos((arm.upper**2 + arm.fore**2 - span**2) / (2 * arm.upper * arm.fore))
    azimuth = np.arctan2(offset[:, 1], offset[:, 0])
    return np.stack([azimuth, np.arctan2(offset[:, 2], flat) + inner, bend], axis=1)


def look_of(words: tuple[str, str, str], variation: int) -> Look:
    """A look of the table, the wall and the time of day."""
    table, wall, time_of_day = words
    return Look(
        family="tabletop", table=table, wall=wall, time_of_day=time_of_day, variation=variation
    )


def prompt_of(words: tuple[str, str, str]) -> str:
    """The prompt of a look."""
    table, wall, time_of_day = words
    return f"a robot arm on a {table} table, {wall} wall, {WORDS[time_of_day]}"


def restyle(
    pipeline: TransferPipeline, episode: Recording, number: int, looks_each: int, steps: int
) -> list[UInt8[np.ndarray, "f h w 3"]]:
    """Looks of one episode; consecutive episodes get different ones of :data:`MADE`."""
    given: dict[str, Any] = {
        "edge": {"weight": CONTROLS["edge"]},
        "vis": {"weight": CONTROLS["vis"]},
        "depth": {"weight": CONTROLS["depth"], "clip": episode.depth, "unit": "m"},
        "seg": {
            "weight": CONTROLS["seg"],
            "clip": episode.class_ids,
            "labels": dict(CLASS_NAMES),
        },
    }
    return [
        augment_episode(
            episode.simulator,
            given,
            prompt=prompt_of(MADE[(number * looks_each + variant) % len(MADE)]),
            restyle=pipeline,
            episode=number,
            variant=variant,
            settings={"num_inference_steps": steps},
        ).frames
        for variant in range(looks_each)
    ]


class Policy(nn.Module):
    """Joint angles from one picture, in units of their spread."""

    def __init__(self, mean: Float[Tensor, " 3"], std: Float[Tensor, " 3"]) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        widths = (3, 16, 32, 64, 64)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
        head = [nn.Flatten(), nn.Linear(64 * 4 * 6, 128), nn.ReLU(), nn.Linear(128, 3)]
        self.layers = nn.Sequential(*layers, *head)

    def forward(self, pictures: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3"]:
        return self.layers(pictures)


def jitter(
    pictures: Float[Tensor, "b 3 h w"], generator: torch.Generator
) -> Float[Tensor, "b 3 h w"]:
    """Brightness, contrast, saturation and tint, drawn for each picture; pictures in [0, 1]."""

    def draw(low: float, high: float, channels: int = 1) -> Tensor:
        drawn = torch.rand((len(pictures), channels, 1, 1), generator=generator)
        return low + (high - low) * drawn

    grey = pictures.mean(dim=1, keepdim=True)
    changed = grey + (pictures - grey) * draw(0.4, 1.6)
    middle = changed.mean(dim=(2, 3), keepdim=True)
    changed = middle + (changed - middle) * draw(0.6, 1.4)
    return (changed * draw(0.4, 1.4) * draw(0.8, 1.2, 3)).clamp(0, 1)


def learn(
    pictures: UInt8[np.ndarray, "n h w 3"],
    actions: Float[np.ndarray, "n 3"],
    *,
    steps: int,
    seed: int,
) -> Policy:
    """A policy from pictures and their actions."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    targets = torch.from_numpy(actions).float()
    policy = Policy(targets.mean(dim=0), targets.std(dim=0))
    targets = (targets - policy.mean) / policy.std
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randint(len(pictures), (32,), generator=generator)
        batch = jitter(_as_floats(pictures[chosen.numpy()]), generator)
        loss = nn.functional.smooth_l1_loss(policy(batch), targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return policy.eval()


@torch.no_grad()
def error_deg(
    policy: Policy, pictures: UInt8[np.ndarray, "n h w 3"], actions: Float[np.ndarray, "n 3"]
) -> float:
    """Mean absolute error of the angles, in degrees."""
    told = policy(_as_floats(pictures)) * policy.std + policy.mean
    return float(np.rad2deg(np.abs(told.numpy() - actions)).mean())


def run(
    *, episodes: int, judged: int, looks_each: int, sampling: int, steps: int, seeds: int
) -> dict[str, Any]:
    """Record, restyle, learn twice, judge."""
    began = time.process_time()
    plain_look = look_of(RECORDED, 1)
    recorded = [record(1000 + index, [plain_look]) for index in range(episodes)]
    unseen = [look_of(words, 100 + index) for index, words in enumerate(UNSEEN)]
    held_out = [record(5000 + index, [plain_look, *unseen]) for index in range(judged)]
    pipeline = TransferPipeline.from_pretrained(show_progress=False)
    plain = np.concatenate([each.looks[0] for each in recorded])
    made = [
        np.concatenate(restyle(pipeline, each, index, looks_each, sampling))
        for index, each in enumerate(recorded)
    ]
    actions = np.concatenate([each.actions for each in recorded])
    repeated = np.concatenate([np.tile(each.actions, (looks_each, 1)) for each in recorded])
    sets = {
        "plain": (plain, actions),
        "augmented": (np.concatenate([plain, *made]), np.concatenate([actions, repeated])),
    }
    truth = np.concatenate([each.actions for each in held_out])
    views = {
        "recorded look": (np.concatenate([each.looks[0] for each in held_out]), truth),
        "unseen looks": (
            np.concatenate([look for each in held_out for look in each.looks[1:]]),
            np.concatenate([np.tile(each.actions, (len(unseen), 1)) for each in held_out]),
        ),
    }
    errors: dict[str, dict[str, list[float]]] = {}
    for name, (pictures, told) in sets.items():
        policies = [learn(pictures, told, steps=steps, seed=seed) for seed in range(seeds)]
        errors[name] = {
            view: [error_deg(policy, *judged_on) for policy in policies]
            for view, judged_on in views.items()
        }
    spread = float(np.rad2deg(np.abs(truth - actions.mean(axis=0))).mean())
    return {"errors_deg": errors, "mean_pose_deg": spread, "cpu_s": time.process_time() - began}


def table(results: dict[str, Any]) -> str:
    """The errors and their ratio, as text."""
    lines = ["mean absolute error of joint angles, degrees (each seed)"]
    for name, views in results["errors_deg"].items():
        told = [
            f"{view} {np.mean(values):.2f} ({', '.join(f'{value:.2f}' for value in values)})"
            for view, values in views.items()
        ]
        lines.append(f"  {name + ' + jitter':<20} {';  '.join(told)}")
    lines.append(f"  always the mean pose {results['mean_pose_deg']:.2f}")
    plain, augmented = (
        float(np.mean(results["errors_deg"][name]["unseen looks"]))
        for name in ("plain", "augmented")
    )
    lines.append(
        f"ratio on unseen looks, augmented / plain: {augmented / plain:.3f} "
        f"({100 * (1 - augmented / plain):.0f} % better)"
    )
    return "\n".join(lines)


def _as_floats(pictures: UInt8[np.ndarray, "n h w 3"]) -> Float[Tensor, "n 3 h w"]:
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255


def _draw_task(rng: np.random.Generator) -> Task:
    spots = []
    for low, high in ((0.1, 0.25), (0.2, 0.42)):
        angle = -0.5 * np.pi + rng.uniform(-1.0, 1.0)
        distance = rng.uniform(0.38, 0.75)
        spot = ARM.base[:2] + distance * np.array([np.cos(angle), np.sin(angle)])
        limit = np.array(HALF_TABLE) - 0.1
        spots.append(np.append(np.clip(spot, -limit, limit), rng.uniform(low, high)))
    return Task(kind="reach", start=spots[0], end=spots[1], duration=10.0, phase=0.0)


def _objects(rng: np.random.Generator, task: Task) -> list[Primitive]:
    found: list[Primitive] = []
    for _ in range(40):
        size = rng.uniform(0.05, 0.1)
        x, y = rng.uniform(-0.8, 0.8), rng.uniform(-0.55, 0.1)
        finish = Finish("box", "object", OBJECT_RGB[rng.integers(len(OBJECT_RGB))])
        if task.gap_to(x, y) > size + 0.18:
            half = (size, size, size)
            found.append(place(Shape.BOX, half, (x, y, size), finish, yaw_rad=rng.uniform(0, 3)))
        if len(found) == 3:
            break
    return found


def _room() -> list[Primitive]:
    facing = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    wall_y = HALF_TABLE[1] + 0.4
    return [
        place(Shape.BOX, (*HALF_TABLE, 0.03), (0.0, 0.0, -0.03), TABLE),
        place(
            Shape.RECTANGLE,
            (6.0, 4.0, 0.0),
            (0.0, wall_y, FLOOR_Z + 4.0),
            WALL,
            rotation=facing,
            casts_shadow=False,
        ),
        place(
            Shape.RECTANGLE,
            (8.0, 8.0, 0.0),
            (0.0, wall_y - 8.0, FLOOR_Z),
            FLOOR,
            casts_shadow=False,
        ),
    ]


def _camera() -> Camera:
    target = np.tile(np.array([0.05, 0.0, 0.15]), (NUM_FRAMES, 1))
    position = target + np.array([0.35, -1.95, 1.15])
    return look_at(position, target, float(np.deg2rad(52.0)))


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.behaviour_cloning")
    parser.add_argument("--episodes", type=int, default=48, help="recorded, of 9 pictures each")
    parser.add_argument("--judged", type=int, default=16, help="other episodes, to judge on")
    parser.add_argument("--looks", type=int, default=3, help="made of each episode")
    parser.add_argument("--sampling", type=int, default=6, help="denoising steps")
    parser.add_argument("--steps", type=int, default=1200, help="of learning, 32 pictures each")
    parser.add_argument("--seeds", type=int, default=2, help="networks of each kind")
    parser.add_argument("--write", action="store_true", help="keep the results in results/")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    settings = {
        "episodes": arguments.episodes,
        "judged": arguments.judged,
        "looks_each": arguments.looks,
        "sampling": arguments.sampling,
        "steps": arguments.steps,
        "seeds": arguments.seeds,
    }
    machine = hardware()
    results = run(**settings)
    print(table(results))
    print(f"{results['cpu_s']:.0f} s of one core")
    if arguments.write:
        content = {"benchmark": "behaviour_cloning", "hardware": machine, "settings": settings}
        print(write_results({**content, **results}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
