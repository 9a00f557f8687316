"""``ngpc make``, ``ngpc fit`` and ``ngpc render`` of scenes, down to the files they write."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from ngpc.cli.main import main
from ngpc.config import Activation, GridConfig, MlpConfig
from ngpc.data.control_folders import write_control_folder
from ngpc.data.images import read_image
from ngpc.data.meshes import read_mesh
from ngpc.encodings import make_encoding
from ngpc.fields.distance import DistanceField
from ngpc.fields.field_files import save_field
from ngpc.fields.radiance import RadianceField
from ngpc.geometry.boxes import Box
from ngpc.geometry.paths import look_at, pinhole
from ngpc.hardware.measured import measure_frame
from ngpc.networks.fused_mlp import FusedMLP

GRID = GridConfig(num_levels=2, log2_table_size=8, base_resolution=4)


@pytest.fixture
def scene_field(tmp_path: Path) -> Path:
    field = RadianceField(
        box=Box(corner=(0.0, 0.0, 0.0), side=2.0), encoding=GRID,
        density_network=MlpConfig(width=16, num_hidden_layers=1),
        colour_network=MlpConfig(
            width=16, num_hidden_layers=1, output_activation=Activation.SIGMOID
        ),
        occupancy_resolution=4, labels={3: "table", 8: "ball"},
        view={
            "height": 8, "width": 12, "focal_x": 12.0, "focal_y": 12.0, "centre_x": 6.0,
            "centre_y": 4.0, "target": [1.0, 1.0, 1.0], "radius": 3.0, "elevation_deg": 20.0,
        },
    )  # fmt: skip
    save_field(field, tmp_path / "field.safetensors")
    return tmp_path / "field.safetensors"


def test_a_scene_becomes_a_folder_of_controls(scene_field: Path, tmp_path: Path) -> None:
    controls, pictures = tmp_path / "controls", tmp_path / "pictures"
    command = [
        "render", str(scene_field), "--controls", str(controls), "--output", str(pictures),
        "--frames", "3", "--rate", "30000/1001", "--metres-per-unit", "0.5",
    ]  # fmt: skip
    assert main(command) == 0
    assert [path.name for path in sorted((controls / "rgb").iterdir())] == [
        "0000.png", "0001.png", "0002.png",
    ]  # fmt: skip
    depth = np.load(controls / "depth.npy", allow_pickle=False)
    assert depth.shape == (3, 8, 12)
    np.testing.assert_allclose(depth, np.load(pictures / "depth.npy") * 0.5)
    assert np.load(controls / "seg.npy", allow_pickle=False).dtype == np.uint8
    settings = json.loads((controls / "scene.json").read_text())
    assert settings["depth"]["unit"] == "m"
    assert settings["depth"]["intrinsics"] == [12.0, 12.0, 6.0, 4.0]
    assert settings["seg"]["labels"] == {"0": "background", "3": "table", "8": "ball"}
    assert [Fraction(each) for each in settings["times"]] == [
        index * Fraction(1001, 30000) for index in range(3)
    ]
    assert read_image(pictures / "normals" / "0000.png").width == 12
    # Nothing is replaced unless asked, and nothing else ever.
    assert main(command) == 2
    assert main([*command, "--overwrite"]) == 0
    (tmp_path / "mine").mkdir()
    refused = ["render", str(scene_field), "--controls", str(tmp_path / "mine"), "--overwrite"]
    assert main(refused) == 2


def test_the_folder_is_one_that_cosmos_transfer_opens(tmp_path: Path) -> None:
    """The packages do not know each other; the folder is what they agree on."""
    from cosmos_transfer.inputs.simulators import open_scene

    depth = np.full((4, 6), 1.5, dtype=np.float32)
    depth[0] = 0.0
    ids = np.where(depth > 0, 3, 0)
    camera = pinhole(height=4, width=6, horizontal_fov_deg=50.0)
    frames = [np.full((4, 6, 3), 0.25 * index) for index in range(3)]
    write_control_folder(
        tmp_path / "scene", rgb_srgb=frames, depth_m=[depth] * 3, ids=[ids] * 3,
        labels={3: "table"}, intrinsics=camera, rate=Fraction(10),
    )  # fmt: skip
    scene = open_scene(tmp_path / "scene")
    clip, metres, classes = scene.clip(), scene.depth(), scene.segmentation()
    assert clip is not None
    assert clip.frames.shape == (3, 4, 6, 3)
    assert list(clip.times) == [Fraction(0), Fraction(1, 10), Fraction(2, 10)]
    assert metres is not None
    assert metres.metres is not None
    np.testing.assert_allclose(metres.metres[:, 1:], 1.5)
    assert not np.isfinite(metres.metres[:, 0]).any()
    assert classes is not None
    assert (classes.ids[:, 1:] == classes.ids[0, 1, 0]).all()
    assert classes.names[int(classes.ids[0, 1, 0])] == "table"


def test_paths_from_a_file_and_other_sizes(scene_field: Path, tmp_path: Path) -> None:
    pose = look_at((1.0, -2.0, 1.0), (1.0, 1.0, 1.0)) * np.array([1.0, -1.0, -1.0, 1.0])
    path = tmp_path / "path.json"
    path.write_text(json.dumps({"frames": [{"transform_matrix": pose.tolist()}] * 2}))
    output = tmp_path / "out"
    command = ["render", str(scene_field), "--path", str(path), "--output", str(output)]
    assert main([*command, "--width", "20", "--height", "10"]) == 0
    depth = np.load(output / "depth.npy")
    assert depth.shape == (2, 10, 20)
    # The first half of the light is lost in the front half of a cube of even density.
    middle = depth[0, 5, 10]
    assert middle == 0 or 2.0 < middle < 4.0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--output, --controls or both"),
        (["--output", "new", "--frames", "0"], "at least 1"),
        (["--output", "new", "--rate", "0"], "frames per second"),
        (["--output", "new", "--path", "dataset"], "--data"),
        (["--output", "new", "--path", "nowhere.json"], "nowhere.json"),
    ],
)
def test_mistakes_are_one_line(
    scene_field: Path, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", str(scene_field), *flags]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_field_that_is_not_there_is_said_to_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "field.safetensors"
    assert main(["render", str(missing), "--controls", str(tmp_path / "controls")]) == 2
    assert "no file" in capsys.readouterr().err


def test_a_mesh_is_made_fitted_and_rendered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mesh = tmp_path / "torus.ply"
    assert main(["make", "mesh", str(mesh), "--solid", "torus"]) == 0
    assert main(["make", "mesh", str(mesh)]) == 2
    assert read_mesh(mesh).is_watertight
    box = Box(corner=(-1.0, -1.0, -1.0), side=2.0)
    field = DistanceField(box=box, encoding=GRID, network=MlpConfig(width=16, num_hidden_layers=1))
    save_field(field, tmp_path / "sdf.safetensors")
    command = ["render", str(tmp_path / "sdf.safetensors"), "--output", str(tmp_path / "out")]
    assert main([*command, "--frames", "1", "--height", "8"]) == 0
    assert read_image(tmp_path / "out" / "rgb" / "0000.png").height == 8
    capsys.readouterr()
    assert main(["fit", "sdf", str(mesh), "--output", str(tmp_path / "fit"), "--steps", "0"]) == 2
    assert "--steps" in capsys.readouterr().err


def test_a_scene_is_made_and_fitted_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, fit = tmp_path / "data", tmp_path / "fit"
    make = ["make", "posed", str(data), "--views", "3", "--held-out", "1", "--size", "12"]
    assert main(make) == 0
    assert main(make) == 2
    command = [
        "fit", "nerf", str(data), "--output", str(fit), "--steps", "2", "--batch-size", "256",
    ]  # fmt: skip
    assert main(command) == 0
    assert "dB" in capsys.readouterr().out
    record = json.loads((fit / "record.json").read_text())
    assert record["settings"]["num_steps"] == 2
    assert record["psnr_db"] > 0
    assert {path.name for path in fit.iterdir()} == {
        "field.safetensors", "render.png", "record.json",
    }  # fmt: skip
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_cloud_is_made(tmp_path: Path) -> None:
    cloud = tmp_path / "cloud.npy"
    assert main(["make", "volume", str(cloud), "--resolution", "16"]) == 0
    assert np.load(cloud, allow_pickle=False).shape == (16, 16, 16)
    assert main(["make", "volume", str(cloud)]) == 2
    assert main(["make", "volume", str(cloud), "--overwrite", "--resolution", "3"]) == 2


def test_a_frame_is_measured_part_by_part(
    scene_field: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["hardware", "--measure", str(scene_field), "--height", "6", "--width", "8"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    parts = json.loads(printed[: printed.rindex("}") + 1])
    (frame,) = parts.values()
    assert set(frame) == {"encoding_s", "mlp_s", "rest_s"}
    assert min(frame.values()) > 0
    assert "N=64" in printed


def test_parts_of_a_frame_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def taking(seconds: float) -> Callable[..., torch.Tensor]:
        def forward(*values: torch.Tensor) -> torch.Tensor:
            clock[0] += seconds
            return torch.zeros(1, 32)

        return forward

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    field = torch.nn.Module()
    field.encoding = make_encoding(GRID, num_dims=3)
    field.network = FusedMLP(MlpConfig(width=16), num_inputs=32, num_outputs=1)
    monkeypatch.setattr(field.encoding, "forward", taking(2.0))
    monkeypatch.setattr(field.network, "forward", taking(5.0))
    rest = taking(1.0)

    def render() -> None:
        field.network(field.encoding(rest()))
        field.network(rest())

    found = measure_frame(field, render, num_frames=1)
    assert (found.encoding_s, found.mlp_s, found.rest_s) == (2.0, 10.0, 2.0)
