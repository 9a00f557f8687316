"""Posed scenes, samples along rays, and radiance fields."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ngpc.config import Activation, GridConfig, MlpConfig
from ngpc.data.posed_images import load_views, read_posed_images
from ngpc.data.posed_scenes import LABELS, SCENE_BOX, Part, trace_view, write_posed_scene
from ngpc.errors import MediaError
from ngpc.fields.field_files import load_field, save_field
from ngpc.fields.radiance import RadianceField
from ngpc.geometry.boxes import Box
from ngpc.geometry.occupancy import OccupancyGrid
from ngpc.geometry.paths import look_at, orbit, pinhole
from ngpc.rendering.compositing import composite
from ngpc.rendering.marching import Samples, march
from ngpc.rendering.radiance import render_view
from ngpc.tasks.nerf import NerfFitConfig, fit_nerf, score_nerf, view_of

GRID = GridConfig(
    num_levels=4, features_per_level=4, log2_table_size=13, base_resolution=8, per_level_scale=1.8
)
SMALL = NerfFitConfig(
    encoding=GRID,
    density_network=MlpConfig(width=32, num_hidden_layers=1),
    colour_network=MlpConfig(
        width=32, num_hidden_layers=1, output_activation=Activation.SIGMOID
    ),
    occupancy_resolution=24,
    num_steps=120,
    samples_per_step=4096,
)  # fmt: skip


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_posed_scene(
        tmp_path_factory.mktemp("scene"), num_views=12, num_held_out=2, size=24
    )


def test_a_traced_block_has_its_exact_depth_and_ids() -> None:
    block = Part(
        label_id=6, centre=(0.0, 0.0, 0.0), half=(0.5, 0.5, 0.5),
        colours=((1.0, 0.0, 0.0), (1.0, 0.0, 0.0)), check_m=1.0, turn_deg=90.0,
    )  # fmt: skip
    camera = pinhole(height=9, width=9, horizontal_fov_deg=40.0)
    view = trace_view((block,), camera, look_at((3.0, 0.0, 0.0), (0.0, 0.0, 0.0)))
    assert view.ids[4, 4] == 6
    assert view.ids[0, 0] == 0
    on_block = view.ids == 6
    np.testing.assert_allclose(view.depth_m[on_block], 2.5)  # planar: a face seen head-on
    assert (view.depth_m[~on_block] == 0).all()
    assert (view.rgba_srgb[..., 3] == on_block).all()


def test_a_ball_is_round_and_lit_from_above() -> None:
    ball = Part(
        label_id=8, centre=(0.0, 0.0, 0.0), half=(0.5, 0.5, 0.5),
        colours=((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)), check_m=1.0,
    )  # fmt: skip
    camera = pinhole(height=33, width=33, horizontal_fov_deg=30.0)
    view = trace_view((ball,), camera, look_at((0.0, -3.0, 0.0), (0.0, 0.0, 0.0)))
    assert view.depth_m[16, 16] == pytest.approx(2.5)
    lit = view.rgba_srgb[..., 0]
    assert lit[9, 16] > lit[23, 16] + 0.2


def test_a_written_scene_is_read_with_its_box_depth_and_labels(scene: Path) -> None:
    posed = read_posed_images(scene)
    views = load_views(posed)
    assert len(posed.views) == 12
    assert views.rgba_srgb.shape == (12, 24, 24, 4)
    assert posed.labels == LABELS
    assert posed.box.side == pytest.approx(SCENE_BOX.side)
    np.testing.assert_allclose(posed.box.corner, SCENE_BOX.corner, atol=1e-9)
    assert views.ids is not None
    assert views.depth is not None
    assert ((views.ids > 0) == (views.depth > 0)).all()
    assert ((views.ids > 0) == (views.rgba_srgb[..., 3] > 0)).all()
    assert 1.0 < views.depth[views.depth > 0].mean() < 2.5
    with pytest.raises(MediaError, match="transforms_train"):
        write_posed_scene(scene)


def test_the_box_of_each_dialect(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    frames = [
        {"file_path": "a.png", "transform_matrix": look_at((x, 1.0, 0.0), (0.0, 0.0, 0.0)).tolist()}
        for x in (-1.0, 3.0)
    ]

    def box(**keys: object) -> Box:
        (tmp_path / "transforms.json").write_text(json.dumps({"frames": frames, **keys}))
        return read_posed_images(tmp_path).box

    synthetic = box(camera_angle_x=0.7)
    assert synthetic.side == pytest.approx(1 / 0.33)
    np.testing.assert_allclose(synthetic.corner, -0.5 / 0.33)
    assert box(x_fov=50.0, aabb_scale=4).side == pytest.approx(4 / 0.33)
    moved = box(fl_x=4.0, scale=0.5, offset=[0.5, 0.5, 0.25])
    np.testing.assert_allclose(moved.corner, [-1.0, -1.0, -0.5])
    around = box(fl_x=4.0)  # nerfstudio: the cameras, half as wide again
    assert around.side == pytest.approx(6.0)
    np.testing.assert_allclose(around.corner, [-2.0, -2.0, -3.0])


def test_the_view_of_a_set_is_what_its_cameras_look_at(scene: Path) -> None:
    view = view_of(read_posed_images(scene))
    np.testing.assert_allclose(view["target"], (0.0, 0.0, 0.08), atol=1e-6)
    assert 1.6 < view["radius"] < 1.9


def test_an_orbit_keeps_its_distance_and_looks_inwards() -> None:
    for pose in orbit(target=(1.0, 2.0, 3.0), radius=2.0, elevation_deg=30.0, num_frames=5):
        offset = np.array([1.0, 2.0, 3.0]) - pose[:3, 3]
        assert np.linalg.norm(offset) == pytest.approx(2.0)
        np.testing.assert_allclose(offset / 2.0, pose[:3, 2], atol=1e-12)
        assert pose[2, 1] < 0  # the rows of the picture run downwards
        assert np.linalg.det(pose[:3, :3]) == pytest.approx(1.0)


def test_only_occupied_cells_are_sampled() -> None:
    grid = OccupancyGrid(resolution=4)
    grid.is_occupied[:] = False
    grid.is_occupied[grid.cell_index(torch.tensor([[0.3, 0.6, 0.9]]))] = True
    origins = torch.tensor([[-1.0, 0.6, 0.9], [-1.0, 0.1, 0.1], [-1.0, 5.0, 0.1]])
    directions = torch.tensor([[1.0, 0.0, 0.0]]).repeat(3, 1)
    samples = march(grid, origins, directions, step=1 / 16)
    assert samples.ray_index.tolist() == [0] * 4
    torch.testing.assert_close(samples.distance, 1.25 + (torch.arange(4) + 0.5) / 16)
    torch.testing.assert_close(samples.positions[:, 0], samples.distance - 1.0)


def test_occupancy_follows_density() -> None:
    grid = OccupancyGrid(resolution=2)
    density = torch.tensor([0.0, 0, 0, 8.0, 0, 0, 0, 0.1])
    grid.update(torch.arange(8), density, decay=0.5, step=0.01)
    assert grid.is_occupied.tolist() == [False] * 3 + [True] + [False] * 4
    for _ in range(4):
        grid.update(torch.tensor([0]), torch.tensor([9.0]), decay=0.5, step=0.01)
    assert grid.density[3] == 0.5
    assert grid.is_occupied.tolist() == [True] + [False] * 7


def packed(ray_index: list[int], step: float, num_rays: int) -> Samples:
    index = torch.tensor(ray_index, dtype=torch.int64)
    return Samples(
        ray_index=index,
        distance=torch.arange(len(index), dtype=torch.float32),
        positions=torch.zeros(len(index), 3),
        num_rays=num_rays,
        step=step,
    )


def test_weights_are_those_of_the_definition_ray_by_ray() -> None:
    density = torch.rand(7, generator=torch.Generator().manual_seed(0)) * 8
    rays = [0, 0, 0, 2, 2, 2, 2]
    weights = composite(packed(rays, 0.1, 4), density).weights
    for ray in (0, 2):
        through = 1.0
        for index in [i for i, r in enumerate(rays) if r == ray]:
            opaque = 1.0 - float(torch.exp(-density[index] * 0.1))
            assert weights[index].item() == pytest.approx(through * opaque, rel=1e-5)
            through *= 1.0 - opaque
    seen = composite(packed(rays, 0.1, 4), density)
    assert seen.opacity[[1, 3]].tolist() == [0.0, 0.0]
    assert seen.sum(torch.ones(7, 2)).shape == (4, 2)
    assert len(composite(packed([], 0.1, 2), density[:0]).weights) == 0


def test_weights_have_the_gradient_of_the_definition() -> None:
    density = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3
    samples = packed([0, 0, 1, 1, 1], 0.3, 2)
    assert torch.autograd.gradcheck(
        lambda d: composite(samples, d).weights, (density.requires_grad_(),)
    )


def test_the_median_lies_where_half_of_the_light_is_lost() -> None:
    density = torch.tensor([1.0, 1.0, 1.0, 0.2, 0.2])
    found = composite(packed([0, 0, 0, 1, 1], 1.0, 2), density).median_distance()
    # In front of the first sample's middle, at an optical depth of ln 2 of its 1.
    assert found[0].item() == pytest.approx(np.log(2.0) - 0.5, abs=1e-6)
    assert found[1].item() == 0.0


class Ball(RadianceField):
    """A red ball of radius 0.25 in the middle, solid."""

    def latent(self, positions: torch.Tensor) -> torch.Tensor:
        inside = 0.25 - (positions - 0.5).norm(dim=1, keepdim=True)
        return torch.cat([(inside * 400).clamp(-20, 9), torch.zeros(len(positions), 15)], dim=1)

    def colour_of(self, latent: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        return latent.new_tensor([[1.0, 0.0, 0.0]]).expand(len(latent), 3)


def test_depth_normals_and_ids_of_a_known_ball_in_world_units() -> None:
    field = Ball(
        box=Box(corner=(0.0, 0.0, 0.0), side=2.0), encoding=GRID,
        density_network=SMALL.density_network, colour_network=SMALL.colour_network,
        occupancy_resolution=8, labels={8: "ball"},
    )  # fmt: skip
    camera = pinhole(height=15, width=15, horizontal_fov_deg=40.0)
    pose = look_at((1.0, -3.0, 1.0), (1.0, 1.0, 1.0))
    view = render_view(field, camera, pose, background=(0.0, 0.0, 1.0))
    assert view.depth[7, 7] == pytest.approx(3.5, abs=0.03)
    np.testing.assert_allclose(view.normals[7, 7], (0.0, -1.0, 0.0), atol=0.02)
    np.testing.assert_allclose(view.rgb_srgb[7, 7], (1.0, 0.0, 0.0), atol=0.01)
    np.testing.assert_allclose(view.rgb_srgb[0, 0], (0.0, 0.0, 1.0), atol=0.01)
    assert view.ids[7, 7] == 8
    assert view.ids[0, 0] == view.depth[0, 0] == 0


def test_a_scene_is_learned_saved_and_rendered_again(scene: Path, tmp_path: Path) -> None:
    fit = fit_nerf(read_posed_images(scene), SMALL)
    held_out = read_posed_images(scene / "transforms_test.json")
    scores = score_nerf(fit.field, held_out)
    assert scores.psnr_db > 17.0  # an empty field: 10.6
    assert scores.depth_error is not None
    assert scores.depth_error < 0.1
    assert scores.id_accuracy is not None
    assert scores.id_accuracy > 0.7
    assert fit.field.occupancy.share < 0.5
    save_field(fit.field, tmp_path / "field.safetensors")
    loaded = load_field(RadianceField, tmp_path / "field.safetensors")
    view = held_out.views[0]
    again = render_view(loaded, view.intrinsics, view.camera_to_world)
    before = render_view(fit.field, view.intrinsics, view.camera_to_world)
    np.testing.assert_array_equal(again.rgb_srgb, before.rgb_srgb)
    assert loaded.labels == LABELS


def test_a_stopped_run_goes_on_to_the_same_scene(scene: Path, tmp_path: Path) -> None:
    posed = read_posed_images(scene)
    few = NerfFitConfig(
        encoding=GRID, density_network=SMALL.density_network, colour_network=SMALL.colour_network,
        occupancy_resolution=8, num_steps=5, samples_per_step=512,
    )  # fmt: skip
    whole = fit_nerf(posed, few)
    checkpoint = tmp_path / "run.safetensors"

    def stop(step_index: int, loss: float) -> None:
        if step_index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_nerf(posed, few, checkpoint=checkpoint, checkpoint_every=3, on_step=stop)
    resumed = fit_nerf(posed, few, checkpoint=checkpoint)
    assert len(resumed.losses) == 2
    assert resumed.losses[-1] == whole.losses[-1]
