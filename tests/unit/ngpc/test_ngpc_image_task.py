"""Fitting an image, saving, loading and rendering it; and the command that does so."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from ngpc.backends.registry import choose_backend
from ngpc.cli.main import main
from ngpc.config import (
    AdamConfig,
    FrequencyConfig,
    GridConfig,
    ImageFitConfig,
    Interpolation,
    MlpConfig,
)
from ngpc.data.images import Image, read_image, write_image
from ngpc.errors import CheckpointError, ConfigError, MediaError
from ngpc.fields.image import (
    ImageField,
    load_image_field,
    pixel_positions,
    render_image,
    save_image_field,
)
from ngpc.tasks import image as image_task
from ngpc.tasks.image import encoding_for_image, fit_image, image_psnr, psnr

SMALL_GRID = GridConfig(
    num_levels=4, log2_table_size=10, base_resolution=4, per_level_scale=2.0,
    interpolation=Interpolation.SMOOTHSTEP,
)  # fmt: skip
SMALL_MLP = MlpConfig(width=16, num_hidden_layers=1)


def synthetic_image(height: int = 40, width: int = 56) -> Image:
    """Smooth shading with a hard-edged disc and fine stripes."""
    y, x = (np.mgrid[0:height, 0:width] + 0.5) / np.array([height, width])[:, None, None]
    red = 0.5 + 0.4 * np.sin(7 * x) * np.cos(5 * y)
    green = np.where((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.09, 0.9, 0.2)
    blue = np.where(np.arange(width) % 4 < 2, 0.7, 0.3) * np.ones_like(y)
    return Image(rgb_srgb=np.stack([red, green, blue], axis=2).astype(np.float32))


def small_field(**changes: object) -> ImageField:
    settings = {
        "height": 12, "width": 20, "encoding": SMALL_GRID, "network": SMALL_MLP,
        "generator": torch.Generator().manual_seed(2), **changes,
    }  # fmt: skip
    field = ImageField(**settings)
    with torch.no_grad():
        for parameter in field.encoding.parameters():
            parameter.mul_(5000)  # so that an untrained field is not flat
    return field


def test_a_synthetic_image_is_fitted_in_seconds() -> None:
    image = synthetic_image()
    config = ImageFitConfig(
        network=MlpConfig(width=32, num_hidden_layers=2), num_steps=80, batch_size=1024
    )
    fit = fit_image(image, config)
    assert fit.psnr_db > 32.0
    assert fit.psnr_db == pytest.approx(image_psnr(fit.field, image))
    assert fit.losses[-1] < 0.02 * fit.losses[0]
    # The best a field without any detail could do, for scale.
    flat = np.broadcast_to(image.rgb_srgb.mean(axis=(0, 1)), image.rgb_srgb.shape)
    assert psnr(flat, image.rgb_srgb) < 16.0


def test_the_same_seed_gives_the_same_field_and_another_gives_another() -> None:
    image = synthetic_image(16, 16)
    fields = []
    for seed in (1, 1, 2):
        config = ImageFitConfig(
            encoding=SMALL_GRID, network=SMALL_MLP, num_steps=3, batch_size=64, seed=seed
        )
        fields.append(fit_image(image, config).field.state_dict())
    for name in fields[0]:
        assert torch.equal(fields[0][name], fields[1][name])
        assert not torch.equal(fields[0][name], fields[2][name])


def test_frequencies_are_fitted_too() -> None:
    config = ImageFitConfig(
        encoding=FrequencyConfig(num_frequencies=6),
        network=SMALL_MLP,
        optimizer=AdamConfig(learning_rate=1e-2),
        num_steps=30,
        batch_size=256,
    )
    losses = fit_image(synthetic_image(16, 16), config).losses
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_adam_gets_the_configured_numbers_and_regularises_matrices_alone() -> None:
    adam = AdamConfig(learning_rate=0.3, beta1=0.8, beta2=0.95, epsilon=1e-9, l2_reg=0.01)
    field = small_field()
    optimizer = image_task._optimizer(field, ImageFitConfig(optimizer=adam))
    matrices, tables = optimizer.param_groups
    assert [id(p) for p in matrices["params"]] == [id(p) for p in field.network.parameters()]
    assert [id(p) for p in tables["params"]] == [id(field.encoding.table)]
    assert (matrices["weight_decay"], tables["weight_decay"]) == (0.01, 0.0)
    for group in (matrices, tables):
        assert (group["lr"], group["betas"], group["eps"]) == (0.3, (0.8, 0.95), 1e-9)


def test_a_field_pads_as_its_encoding_says() -> None:
    for encoding, padding in ((SMALL_GRID, 0.0), (FrequencyConfig(num_frequencies=3), 1.0)):
        field = small_field(encoding=encoding)
        assert field.encoding.num_outputs % 16 != 0
        positions = torch.rand(5, 2)
        features = field.encoding(positions)
        missing = 16 - features.shape[1] % 16
        padded = torch.cat([features, torch.full((5, missing), padding)], dim=1)
        assert torch.equal(field(positions), field.network(padded))


def test_training_that_leaves_the_finite_numbers_stops() -> None:
    config = ImageFitConfig(
        encoding=SMALL_GRID,
        network=MlpConfig(width=16, num_hidden_layers=4),
        optimizer=AdamConfig(learning_rate=1e30),
        num_steps=20,
    )
    with pytest.raises(ConfigError, match=r"a finite error, got .*Lower optimizer.learning_rate"):
        fit_image(synthetic_image(8, 8), config)


def test_psnr_of_known_errors() -> None:
    target = np.full((4, 4, 3), 0.5, dtype=np.float32)
    assert psnr(target + 0.1, target) == pytest.approx(20.0, abs=1e-5)
    assert psnr(target, target) == float("inf")
    assert psnr(np.full_like(target, 7.0), np.ones_like(target)) == float("inf")


def test_the_default_grid_reaches_the_pixels() -> None:
    levels = encoding_for_image(300, 512).layout(2).levels
    assert levels[0].resolution == 16
    assert abs(levels[-1].resolution - 512) <= 1
    assert encoding_for_image(1, 1).layout(2).levels[-1].resolution == 16


def test_pixel_centres() -> None:
    centres = pixel_positions(torch.arange(6), height=2, width=3)
    assert centres[0].tolist() == pytest.approx([1 / 6, 0.25])
    assert centres[5].tolist() == pytest.approx([5 / 6, 0.75])


def test_chunks_do_not_change_what_is_rendered() -> None:
    field = small_field()
    whole = render_image(field)
    assert whole.shape == (12, 20, 3)
    torch.testing.assert_close(render_image(field, chunk_size=7), whole, rtol=1e-5, atol=1e-6)


def test_a_region_is_the_same_part_of_the_whole() -> None:
    field = small_field()
    whole = render_image(field, height=24, width=40)
    part = render_image(field, height=12, width=10, region=(0.25, 0.5, 0.5, 1.0))
    torch.testing.assert_close(part, whole[12:, 10:20], rtol=1e-5, atol=1e-5)


def test_one_side_keeps_the_aspect_ratio() -> None:
    field = small_field()
    assert render_image(field, width=10).shape == (6, 10, 3)
    assert render_image(field, height=24).shape == (24, 40, 3)
    assert render_image(field, width=10, region=(0.0, 0.0, 0.5, 1.0)).shape == (12, 10, 3)


def test_a_region_without_area_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"left < right and top < bottom, got 0.5 0 0.5 1"):
        render_image(small_field(), region=(0.5, 0.0, 0.5, 1.0))


@pytest.mark.parametrize("encoding", [SMALL_GRID, FrequencyConfig(num_frequencies=3)])
def test_a_saved_field_renders_the_same_bits(
    encoding: GridConfig | FrequencyConfig, tmp_path: Path
) -> None:
    field = small_field(encoding=encoding)
    save_image_field(field, tmp_path / "field.safetensors")
    loaded = load_image_field(tmp_path / "field.safetensors")
    assert torch.equal(render_image(loaded), render_image(field))
    assert b"reference" not in (tmp_path / "field.safetensors").read_bytes()


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "field.safetensors"
    with pytest.raises(MediaError, match="expected a saved field, got no file"):
        load_image_field(path)
    path.write_bytes(b"12345678 not safetensors")
    with pytest.raises(CheckpointError, match="expected safetensors"):
        load_image_field(path)
    safetensors.torch.save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match="'ngpc image field 1', got None"):
        load_image_field(path)


def test_parameters_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "field.safetensors"
    save_image_field(small_field(), path)
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors["encoding.table"] = tensors["encoding.table"][1:]
    safetensors.torch.save_file(tensors, path, metadata)
    with pytest.raises(CheckpointError, match=r"size mismatch for encoding.table"):
        load_image_field(path)


# -------------------------------------------------------------------------------------- the command


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    return write_image(tmp_path / "picture.png", synthetic_image(16, 24).rgb_srgb)


def test_fit_and_render_from_the_command_line(
    picture: Path, tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "fit"
    config = repository / "configs" / "ngpc" / "image" / "frequency.json"
    command = ["fit", "image", str(picture), "--output", str(output)]
    assert main([*command, "--steps", "4", "--seed", "7", "--config", str(config)]) == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "field.safetensors", "record.json", "render.png",
    ]  # fmt: skip
    record = json.loads((output / "record.json").read_text())
    backend = choose_backend("auto", "cpu").name
    assert (record["num_steps"], record["seed"], record["backend"]) == (4, 7, backend)
    assert record["encoding"] == {"otype": "Frequency", "n_frequencies": 10}
    assert f"{record['psnr_db']:.2f} dB, 4 steps" in capsys.readouterr().out
    rendered = read_image(output / "render.png").rgb_srgb
    assert psnr(rendered, read_image(picture).rgb_srgb) == pytest.approx(record["psnr_db"], abs=0.1)

    zoomed = tmp_path / "zoomed.png"
    command = ["render", str(output / "field.safetensors"), "--output", str(zoomed)]
    assert main([*command, "--region", "0", "0", "0.5", "0.5", "--width", "48"]) == 0
    assert capsys.readouterr().out == f"{zoomed}: 48x32\n"
    assert read_image(zoomed).rgb_srgb.shape == (32, 48, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "image", "absent.png", "--output", "new"], "absent.png: expected a readable"),
        (["fit", "image", "P", "--output", "new", "--steps", "0"], "num_steps: expected a whole"),
        (["fit", "image", "P", "--output", "new", "--backend", "fast"], "got 'fast'"),
        (["fit", "image", "P", "--output", "new", "--device", "abacus"], "device: expected one"),
        (["fit", "image", "P", "--output", "new", "--config", "no.json"], "no.json: expected a"),
        (["render", "no.safetensors", "--output", "new.png"], "no.safetensors: expected a field"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str],
    message: str,
    picture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(picture) if word == "P" else word for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("ngpc: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_an_earlier_fit_is_replaced_only_when_asked(
    picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "fit"
    command = ["fit", "image", str(picture), "--output", str(output), "--steps", "1"]
    assert main(command) == 0
    before = (output / "field.safetensors").read_bytes()
    assert main([*command, "--seed", "1"]) == 2
    assert "expected a folder without an earlier fit" in capsys.readouterr().err
    assert (output / "field.safetensors").read_bytes() == before
    assert main([*command, "--seed", "1", "--overwrite"]) == 0
    assert (output / "field.safetensors").read_bytes() != before


def test_help_and_import_are_light(repository: Path) -> None:
    program = (
        "import sys, ngpc, ngpc.config, ngpc.shapes, ngpc.backends.registry\n"
        "from ngpc.cli.main import main\n"
        "try: main(['fit', 'image', '--help'])\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "heavy = {'torch', 'numpy', 'cv2', 'PIL', 'hydra', 'omegaconf', 'triton', 'tinycudann',\n"
        "         'gradio', 'cosmos_transfer'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--learning-rate" in done.stdout
    assert time.perf_counter() - started < 5.0  # a tenth of a second; the rest is a busy machine


def test_every_public_name_resolves() -> None:
    import ngpc

    for name in ngpc.__all__:
        value = getattr(ngpc, name)
        assert name == "BACKENDS" or value.__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        ngpc.absent  # noqa: B018
