"""Meshes, distances to them, and fields of such distances."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from ngpc.config import GridConfig, MlpConfig
from ngpc.data.meshes import Mesh, clean_mesh, read_mesh, write_ply
from ngpc.data.solids import SOLIDS, solid_mesh
from ngpc.errors import CheckpointError, ConfigError, MediaError
from ngpc.fields.distance import DistanceField
from ngpc.fields.field_files import load_field, save_field
from ngpc.geometry.boxes import Box, cube_around, unit_cube_span
from ngpc.geometry.triangles import Surface, cells_inside, closest_on_triangles
from ngpc.rendering.sphere_tracing import shade, trace_spheres
from ngpc.tasks.sdf import SdfFitConfig, extract_mesh, fit_sdf, score_sdf

SMALL = SdfFitConfig(
    encoding=GridConfig(
        num_levels=4, features_per_level=4, log2_table_size=12, base_resolution=4,
        per_level_scale=1.6,
    ),
    network=MlpConfig(width=32, num_hidden_layers=1),
    num_steps=150,
    batch_size=1024,
    pool_size=2**13,
)  # fmt: skip


def cube_mesh() -> Mesh:
    box = trimesh.creation.box((2.0, 2.0, 2.0))
    return clean_mesh(box.vertices, box.faces, where="cube")


def test_distances_and_signs_of_a_cube_are_exact() -> None:
    points = np.random.default_rng(0).uniform(-2.0, 2.0, (500, 3))
    outside = np.linalg.norm(np.maximum(np.abs(points) - 1.0, 0.0), axis=1)
    exact = outside + np.minimum(np.abs(points).max(axis=1) - 1.0, 0.0)
    mesh = cube_mesh()
    surface = Surface(mesh.corners)
    assert mesh.is_watertight
    np.testing.assert_allclose(
        surface.signed_distance(points, is_watertight=True), exact, atol=1e-5
    )
    # The winding number knows the inside by another way.
    assert ((surface.winding_number(points) > 0.5) == (exact < 0)).all()


def test_an_edge_is_nearest_from_outside_a_sharp_corner() -> None:
    """Seen edge-on, the wrong face of a wedge would call the point inside."""
    mesh = clean_mesh(*_wedge(), where="wedge")
    points = np.array([[-0.2, 0.05, 0.5], [-0.2, -0.05, 0.5], [0.5, 0.0, 0.5]])
    signs = np.sign(Surface(mesh.corners).signed_distance(points, is_watertight=True))
    assert signs.tolist() == [1, 1, -1]


def _wedge() -> tuple[np.ndarray, np.ndarray]:
    base = [(0.0, 0.0), (1.0, -0.1), (1.0, 0.1)]
    vertices = np.array([(x, y, z) for z in (0.0, 1.0) for x, y in base])
    faces = [(0, 2, 1), (3, 4, 5)]
    for first, second in ((0, 1), (1, 2), (2, 0)):
        faces += [(first, second, second + 3), (first, second + 3, first + 3)]
    return vertices, np.array(faces)


def test_closest_points_in_every_region_of_a_triangle() -> None:
    triangle = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    points = np.array(
        [[-1, -1, 1], [2, 0, 0], [0, 3, 0], [0.5, -1, 0], [-1, 0.5, 0], [1, 1, 0], [0.2, 0.2, 5]]
    )
    expected = [
        [0, 0, 0], [1, 0, 0], [0, 1, 0], [0.5, 0, 0], [0, 0.5, 0], [0.5, 0.5, 0], [0.2, 0.2, 0],
    ]  # fmt: skip
    found = closest_on_triangles(points, np.repeat(triangle[None], len(points), axis=0))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_cells_inside_are_those_with_a_winding_number() -> None:
    mesh = solid_mesh("drilled", resolution=20)
    corners = cube_around(mesh.vertices, margin=0.1).to_unit(mesh.corners)
    cells = cells_inside(corners, 16)
    axis = (np.arange(16) + 0.5) / 16
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    assert 0.1 < cells.mean() < 0.6
    pick = np.random.default_rng(0).choice(len(grid), 600, replace=False)
    winding = Surface(corners).winding_number(grid[pick])
    assert ((winding > 0.5) == cells.reshape(-1)[pick]).all()


def test_faces_without_area_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    mesh = cube_mesh()
    thin = np.array([[0, 0, 1], [2, 2, 2]])
    with caplog.at_level(logging.WARNING):
        cleaned = clean_mesh(mesh.vertices, np.vstack([mesh.faces, thin]), where="cube.obj")
    assert cleaned.num_dropped_faces == 2
    assert "2 of 14 faces" in caplog.text
    assert cleaned.is_watertight


def test_an_open_mesh_is_warned_of_and_signed_by_winding_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mesh = cube_mesh()
    with caplog.at_level(logging.WARNING):
        opened = clean_mesh(mesh.vertices, mesh.faces[1:], where="cube.stl")
    assert not opened.is_watertight
    assert "not watertight" in caplog.text
    signed = Surface(opened.corners).signed_distance(
        np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0]]), is_watertight=False
    )
    assert signed[0] < 0 < signed[1]


@pytest.mark.parametrize("suffix", [".obj", ".ply", ".stl"])
def test_meshes_are_read_in_three_formats(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"cube{suffix}"
    trimesh.creation.box((2.0, 2.0, 2.0)).export(path)
    mesh = read_mesh(path)
    assert len(mesh.faces) == 12
    assert len(mesh.vertices) == 8
    assert mesh.is_watertight


def test_our_ply_is_read_back(tmp_path: Path) -> None:
    mesh = solid_mesh("torus", resolution=12)
    write_ply(tmp_path / "torus.ply", mesh)
    back = read_mesh(tmp_path / "torus.ply")
    assert len(back.faces) == len(mesh.faces)
    np.testing.assert_allclose(back.corners.mean(), mesh.corners.mean(), atol=1e-6)


def test_what_is_no_mesh_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="no file"):
        read_mesh(tmp_path / "a.obj")
    (tmp_path / "a.txt").write_text("no")
    with pytest.raises(MediaError, match=r"\.stl"):
        read_mesh(tmp_path / "a.txt")
    (tmp_path / "a.ply").write_bytes(b"ply\nnonsense")
    with pytest.raises(MediaError, match="Export the mesh"):
        read_mesh(tmp_path / "a.ply")
    with pytest.raises(ConfigError, match="torus"):
        solid_mesh("teapot")


@pytest.mark.parametrize("name", SOLIDS)
def test_solids_are_closed(name: str) -> None:
    assert solid_mesh(name, resolution=16).is_watertight


def test_a_ray_is_inside_the_cube_between_its_ends() -> None:
    origins = torch.tensor([[-1.0, 0.5, 0.5], [0.5, 0.5, 0.5], [-1.0, 2.0, 0.5]])
    directions = torch.tensor([[1.0, 0, 0], [0, 0, -1.0], [1.0, 0, 0]])
    near, far = unit_cube_span(origins, directions)
    assert near[:2].tolist() == [1.0, 0.0]
    assert far[:2].tolist() == [2.0, 0.5]
    assert near[2] == far[2]


class ExactSphere(DistanceField):
    """A ball of radius 0.3 instead of a trained field."""

    def __init__(self) -> None:
        super().__init__(
            box=Box(corner=(0.0, 0.0, 0.0), side=1.0),
            encoding=SMALL.encoding,
            network=SMALL.network,
        )

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return (positions - 0.5).norm(dim=1) - 0.3


def test_rays_stop_at_a_sphere_and_see_its_normal() -> None:
    origins = torch.tensor([[0.5, 0.5, -1.0], [0.9, 0.9, -1.0]])
    directions = torch.tensor([[0.0, 0.0, 1.0]]).repeat(2, 1)
    hits = trace_spheres(ExactSphere(), origins, directions)
    assert hits.is_hit.tolist() == [True, False]
    assert hits.distance[0].item() == pytest.approx(1.2, abs=1e-3)
    torch.testing.assert_close(hits.normals[0], torch.tensor([0.0, 0.0, -1.0]), atol=1e-3, rtol=0)
    assert shade(hits)[1].tolist() == [1.0, 1.0, 1.0]
    assert shade(hits)[0, 0] < 0.5  # turned away from the light


def test_a_field_learns_a_cube_and_comes_back_as_a_mesh(tmp_path: Path) -> None:
    mesh = cube_mesh()
    fit = fit_sdf(mesh, SMALL)
    scores = score_sdf(fit.field, mesh, resolution=32, num_points=2000)
    assert scores.iou > 0.98
    assert scores.chamfer < 0.06  # of which 0.045 is the spacing of the points
    assert scores.normal_error_deg < 6.0
    assert fit.losses[-1] < 0.5 * fit.losses[0]
    extracted = extract_mesh(fit.field, resolution=24)
    np.testing.assert_allclose(extracted.vertices.max(axis=0), 1.0, atol=0.1)
    save_field(fit.field, tmp_path / "field.safetensors")
    loaded = load_field(DistanceField, tmp_path / "field.safetensors")
    points = torch.rand(50, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded(points), fit.field(points))


def test_a_stopped_run_goes_on_to_the_same_field(tmp_path: Path) -> None:
    mesh = cube_mesh()
    whole = fit_sdf(mesh, _steps(6))
    checkpoint = tmp_path / "run.safetensors"

    def stop(step_index: int, loss: float) -> None:
        if step_index == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_sdf(mesh, _steps(6), checkpoint=checkpoint, checkpoint_every=3, on_step=stop)
    resumed = fit_sdf(mesh, _steps(6), checkpoint=checkpoint)
    assert len(resumed.losses) == 3
    assert resumed.losses[-1] == whole.losses[-1]
    with pytest.raises(CheckpointError, match="other settings"):
        fit_sdf(mesh, _steps(7), checkpoint=checkpoint)


def _steps(num_steps: int) -> SdfFitConfig:
    return SdfFitConfig(
        encoding=SMALL.encoding, network=SMALL.network, num_steps=num_steps, batch_size=256,
        pool_size=1024,
    )  # fmt: skip
