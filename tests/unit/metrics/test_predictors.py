from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cosmos_transfer.controls.depth import DepthEstimator
from cosmos_transfer.controls.seg import SegmentationEstimator
from cosmos_transfer.errors import CheckpointError, ConfigError
from cosmos_transfer.inputs.video import VideoClip, resize_frames
from cosmos_transfer.metrics.evaluate import find_estimators
from cosmos_transfer.metrics.predictors import (
    DepthPredictor,
    Floor,
    FrameNetwork,
    PredictorConfig,
    SegmentationPredictor,
    load_predictor,
    load_predictors,
    save_predictor,
)
from cosmos_transfer.shapes import Size

CLASSES = ("sky", "road", "car")
FLOOR = Floor(
    metric="mask_miou",
    mean=0.7,
    standard_error=0.01,
    num_clips=48,
    measured_on="scenes",
    families={"driving": {"mean": 0.8, "standard_error": 0.02, "num_clips": 34}},
)


def network(task: str = "seg") -> FrameNetwork:
    torch.manual_seed(1)
    return FrameNetwork(PredictorConfig(task=task, classes=CLASSES if task == "seg" else ()))


def frames(num_frames: int = 2, height: int = 64, width: int = 96, seed: int = 0) -> np.ndarray:
    coarse = np.random.default_rng(seed).integers(0, 256, (num_frames, 8, 8, 3), dtype=np.uint8)
    rows = np.arange(height) * 8 // height
    columns = np.arange(width) * 8 // width
    return coarse[:, rows][:, :, columns]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint folder with both predictors, untrained."""
    save_predictor(tmp_path / "predictors/seg", network("seg"), floor=FLOOR)
    save_predictor(tmp_path / "predictors/depth", network("depth"), floor=None)
    return tmp_path


@pytest.mark.parametrize(
    "size", [(64, 96), (63, 95), (1, 1), (7, 113), (97, 110), (200, 320), (130, 97)]
)
def test_any_size_comes_back_as_it_went_in(size: tuple[int, int]) -> None:
    clip = frames(2, *size)
    ids = SegmentationPredictor(network("seg")).predict(clip)
    depth = DepthPredictor(network("depth")).predict(clip)
    assert ids.shape == depth.shape == (2, *size)
    assert set(np.unique(ids)) <= {0, 1, 2}
    assert np.isfinite(depth).all()
    assert (depth > 0).all()


def test_they_are_estimators_of_the_controls() -> None:
    depth, seg = DepthPredictor(network("depth")), SegmentationPredictor(network("seg"))
    assert isinstance(depth, DepthEstimator)
    assert isinstance(seg, SegmentationEstimator)
    clip = VideoClip(frames=frames(1), times=(Fraction(0),), rate=Fraction(8))
    assert depth(clip).metres.shape == (1, 64, 96)
    assert seg(clip).names == {0: "sky", 1: "road", 2: "car"}


def test_every_frame_is_judged_by_itself() -> None:
    predictor = DepthPredictor(network("depth"))
    clip = frames(18)  # more than go through the network at once
    together = predictor.predict(clip)
    for index in (0, 15, 16, 17):
        alone = predictor.predict(clip[index : index + 1])[0]
        np.testing.assert_allclose(together[index], alone, rtol=1e-5)
    assert np.abs(together[0] / together[1] - 1).max() > 1e-3


def test_a_large_frame_is_judged_as_its_small_copy_is() -> None:
    predictor = DepthPredictor(network("depth"))
    small = frames(1, 96, 144)
    large = small.repeat(2, axis=1).repeat(2, axis=2)
    found = predictor.predict(large)
    expected = predictor.predict(small)
    # Corresponding places, away from what interpolation does between them.
    ratio = np.log(found.reshape(1, 96, 2, 144, 2).mean(axis=(2, 4)) / expected)
    assert np.abs(ratio).mean() < 0.1 * np.log(expected).std()


def test_a_tiny_frame_is_judged_as_its_large_copy_is() -> None:
    predictor = DepthPredictor(network("depth"))
    large = frames(1, 96, 144)
    tiny = resize_frames(large, Size(32, 48), how="area")
    expected = predictor.predict(resize_frames(tiny, Size(96, 144), how="linear"))
    found = predictor.predict(tiny)
    middles = expected[:, 1::3, 1::3]
    assert np.abs(np.log(found / middles)).mean() < 0.1 * np.log(middles).std()


def test_mirrored_features_reach_across_the_picture() -> None:
    net = network("depth")
    clip = torch.from_numpy(frames(1)).permute(0, 3, 1, 2).float() / 127.5 - 1
    changed = clip.clone()
    changed[..., 40:48, 40:48] += 0.5
    with torch.no_grad():
        moved = (net(changed) - net(clip)).abs()[0, 0]
    assert moved[40:48, 40:48].mean() > moved[:8, :8].mean() > 0


def test_a_predictor_is_small(saved: Path) -> None:
    num_parameters = sum(
        p.numel() for p in FrameNetwork(PredictorConfig(task="depth")).parameters()
    )
    assert 200_000 < num_parameters < 400_000
    for path in saved.rglob("*.safetensors"):
        assert path.stat().st_size < 1_000_000
        assert path.stat().st_mode & 0o777 == 0o644
        assert {value.dtype for value in load_file(path).values()} == {torch.float16}


def test_a_predictor_comes_back_to_fp16_rounding(saved: Path) -> None:
    loaded, floor = load_predictor(saved / "predictors/seg", task="seg")
    assert floor == FLOOR
    assert loaded.config == network("seg").config
    for key, value in network("seg").state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value.half().float()), key
    assert not any(p.requires_grad for p in loaded.parameters())


def test_both_are_loaded_from_a_checkpoint(saved: Path) -> None:
    predictors = load_predictors(saved)
    assert predictors.seg.floor == FLOOR
    assert predictors.depth.floor is None
    found = find_estimators(saved)
    assert isinstance(found["depth"], DepthPredictor)
    assert isinstance(found["seg"], SegmentationPredictor)
    assert find_estimators(None) == {}


def test_a_floor_says_where_it_comes_from() -> None:
    assert str(FLOOR) == "0.700 ± 0.010 (n=48) on scenes; driving 0.800 ± 0.020 (n=34)"


def test_weights_that_changed_are_refused(saved: Path) -> None:
    path = saved / "predictors/seg/model.safetensors"
    weights = load_file(path)
    weights["head.bias"] += 1
    save_file(weights, path)
    with pytest.raises(CheckpointError, match=r"model\.safetensors with sha256"):
        load_predictors(saved)


def _rewrite(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "depth", "classes": []}, "a predictor of seg, got depth"),
        ({"task": "normals"}, "a complete config.json"),
        ({"widths": [24, 48, 96]}, "shapes that differ"),
        ({"classes": ["sky", "road"]}, "head.weight"),
        ({"floor": {"mean": 1.0}}, "a complete config.json"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    saved: Path, changes: dict[str, object], message: str
) -> None:
    _rewrite(saved / "predictors/seg", **changes)
    with pytest.raises(CheckpointError, match=message):
        load_predictors(saved)


def test_what_is_missing_is_named(saved: Path) -> None:
    (saved / "predictors/seg/model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"expected model\.safetensors, got none"):
        load_predictors(saved)
    with pytest.raises(CheckpointError, match="expected a folder predictors/"):
        load_predictors(saved / "predictors")


def test_weights_that_fp16_cannot_hold_are_not_written(tmp_path: Path) -> None:
    net = network()
    with torch.no_grad():
        net.head.bias[0] = 1e6
    with pytest.raises(CheckpointError, match=r"infinity or NaN in head\.bias"):
        save_predictor(tmp_path / "seg", net, floor=None)
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(("task", "classes"), [("seg", ()), ("depth", ("sky",)), ("normals", ())])
def test_a_config_says_what_it_is_for(task: str, classes: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="predictor"):
        PredictorConfig(task=task, classes=classes)
