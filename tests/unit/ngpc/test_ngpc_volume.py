"""Volumes, paths through them, and fields of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from ngpc.config import GridConfig, MlpConfig
from ngpc.data.volumes import procedural_cloud, read_volume, volume_of
from ngpc.errors import MediaError
from ngpc.fields.field_files import load_field, save_field
from ngpc.fields.volume import VolumeField
from ngpc.geometry.paths import look_at, pinhole
from ngpc.rendering import path_tracing
from ngpc.rendering.path_tracing import ALBEDO, lookup, sky, trace_paths
from ngpc.rendering.views import render_volume_view, to_srgb
from ngpc.tasks.image import psnr
from ngpc.tasks.volume import VolumeFitConfig, fit_volume, path_traced_picture

SMALL = VolumeFitConfig(
    encoding=GridConfig(
        num_levels=3, features_per_level=4, log2_table_size=12, base_resolution=6,
        per_level_scale=1.6,
    ),
    network=MlpConfig(width=32, num_hidden_layers=1),
    occupancy_resolution=12,
    num_steps=60,
    batch_size=1024,
    pool_size=2**12,
    paths_per_point=4,
)  # fmt: skip


def nrrd(path: Path, values: np.ndarray, *, encoding: str = "raw", extra: str = "") -> Path:
    kind = {"<f4": "float", ">u2": "uint16", "|u1": "uint8"}[values.dtype.str]
    endian = "big" if values.dtype.str[0] == ">" else "little"
    sizes = " ".join(map(str, values.shape))
    data = values.tobytes(order="F")
    head = (
        f"NRRD0004\n# a comment\ntype: {kind}\ndimension: 3\nsizes: {sizes}\n"
        f"endian: {endian}\nencoding: {encoding}\n{extra}\n"
    )
    path.write_bytes(head.encode() + (gzip.compress(data) if encoding == "gzip" else data))
    return path


@pytest.mark.parametrize("dtype", ["<f4", ">u2", "|u1"])
@pytest.mark.parametrize("encoding", ["raw", "gzip"])
def test_nrrd_and_npy_give_the_same_volume(tmp_path: Path, dtype: str, encoding: str) -> None:
    values = np.random.default_rng(0).integers(0, 200, (3, 4, 5)).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    plain = read_volume(tmp_path / "a.npy")
    other = read_volume(nrrd(tmp_path / "a.nrrd", values, encoding=encoding))
    np.testing.assert_array_equal(plain.density, other.density)
    assert plain.density.shape == (5, 5, 5)  # padded to a cube
    assert plain.density.max() == 1.0


def test_what_is_no_volume_is_refused(tmp_path: Path) -> None:
    values = np.ones((2, 3, 4), dtype="<f4")
    good = nrrd(tmp_path / "a.nrrd", values).read_bytes()
    for content, words in (
        (b"hello", "another header"),
        (good[:-1], "bytes of data"),
        (good.replace(b"raw", b"bzip2"), "bzip2"),
        (good.replace(b"sizes: 2 3 4", b"sizes: 2 3"), "three sizes"),
        (good.replace(b"sizes: 2 3 4", b"sizes: 99999 99999 9"), "2 GiB"),
        (good.replace(b"# a comment", b"data file: ../secret.raw"), "beside"),
    ):
        (tmp_path / "b.nrrd").write_bytes(content)
        with pytest.raises(MediaError, match=words):
            read_volume(tmp_path / "b.nrrd")
    for array in (np.zeros((3, 3, 3)), np.full((3, 3, 3), np.nan), np.ones((3, 3))):
        with pytest.raises(MediaError, match="three axes"):
            volume_of(array, optical_depth=1.0, where="array")
    with pytest.raises(MediaError, match="no file"):
        read_volume(tmp_path / "c.npy")


def test_lookup_is_linear_along_each_axis() -> None:
    axis = torch.linspace(0.0, 1.0, 5)
    grid = axis[:, None, None] + 2 * axis[None, :4, None] + 3 * axis[None, None, :3]
    points = torch.rand(50, 3, generator=torch.Generator().manual_seed(0))
    expected = points @ torch.tensor([1.0, 2 * 0.75, 3 * 0.5])
    torch.testing.assert_close(lookup(grid, points), expected)


def test_paths_through_an_even_medium_lose_light_as_they_must(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under a sky of 1 all round, a medium that absorbs nothing is invisible, one that absorbs
    everything lets exp(-depth) through."""
    density = torch.full((3, 3, 3), 1.5)
    origins = torch.tensor([[0.5, 0.5, -1.0]]).repeat(4000, 1)
    ahead = torch.tensor([[0.0, 0.0, 1.0]]).repeat(4000, 1)
    monkeypatch.setattr(path_tracing, "sky", torch.ones_like)
    for albedo, expected, tolerance in ((1.0, 1.0, 1e-6), (0.0, np.exp(-1.5), 0.03)):
        monkeypatch.setattr(path_tracing, "ALBEDO", albedo)
        draw = torch.Generator().manual_seed(0)
        radiance = trace_paths(density, origins, ahead, generator=draw)
        assert radiance.mean().item() == pytest.approx(expected, abs=tolerance + 0.06 * albedo)


def test_rays_past_the_cloud_see_the_sky() -> None:
    origins = torch.tensor([[5.0, 5.0, 5.0]])
    away = torch.tensor([[0.0, 1.0, 0.0]])
    draw = torch.Generator().manual_seed(0)
    seen = trace_paths(torch.ones(3, 3, 3), origins, away, generator=draw)
    torch.testing.assert_close(seen, sky(away))
    assert 0 < ALBEDO < 1


def test_the_curve_of_srgb() -> None:
    linear = np.array([[0.0, 0.0031308, 1.0], [0.214041, -1.0, 2.0]])
    expected = [[0.0, 0.04045, 1.0], [0.5, 0.0, 1.0]]
    np.testing.assert_allclose(to_srgb(linear), expected, atol=1e-4)


def test_a_cloud_is_learned_saved_and_rendered_again(tmp_path: Path) -> None:
    cloud = procedural_cloud(resolution=16, optical_depth=6.0)
    fit = fit_volume(cloud, SMALL)
    camera = pinhole(height=16, width=16, horizontal_fov_deg=40.0)
    pose = look_at((0.5, -1.2, 0.8), (0.5, 0.5, 0.5))
    view = render_volume_view(fit.field, camera, pose)
    truth = path_traced_picture(cloud, camera, pose, paths_per_pixel=48)
    fit_psnr = psnr(view.rgb_srgb, truth)
    empty = VolumeField.from_description(fit.field.description())
    with torch.no_grad():
        for parameter in empty.parameters():
            parameter.zero_()
    without = psnr(render_volume_view(empty, camera, pose).rgb_srgb, truth)
    assert fit_psnr > 26.0
    assert fit_psnr > without + 6.0
    assert view.opacity[8, 8] > 0.5
    save_field(fit.field, tmp_path / "field.safetensors")
    loaded = load_field(VolumeField, tmp_path / "field.safetensors")
    again = render_volume_view(loaded, camera, pose)
    np.testing.assert_array_equal(again.rgb_srgb, view.rgb_srgb)
