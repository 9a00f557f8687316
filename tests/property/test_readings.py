"""One mask in any form is one mask; depth in any coding is the depth it was made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import save_file

from cosmos_transfer.inputs.class_rules import resolve_class_rule
from cosmos_transfer.inputs.depth import depth_from_array
from cosmos_transfer.inputs.masks import read_mask

SEEDS = st.integers(0, 2**32 - 1)
# A folder is shared by the examples of a test: each writes over the last one's files.
QUICK = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@QUICK
@given(seed=SEEDS, height=st.integers(1, 20), width=st.integers(1, 20), invert=st.booleans())
def test_a_mask_is_the_same_in_every_form(
    tmp_path: Path, seed: int, height: int, width: int, invert: bool
) -> None:
    levels = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    levels[0, 0] = 255  # the whole range, so that no form can be taken for another
    expected = np.float32(levels[None] / 255)
    if invert:
        expected = np.float32(1) - expected
    Image.fromarray(levels).save(tmp_path / "grey.png")
    Image.fromarray(levels).convert("RGB").save(tmp_path / "colour.png")
    alpha = np.dstack([np.zeros((height, width, 3), np.uint8), levels])
    Image.fromarray(alpha).save(tmp_path / "alpha.png")
    Image.fromarray(levels.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    np.save(tmp_path / "fractions.npy", levels / 255)
    np.savez(tmp_path / "levels.npz", levels)
    save_file({"mask": levels.astype(np.int32)}, tmp_path / "levels.safetensors")
    for path in sorted(tmp_path.iterdir()):
        if path.name == "alpha.png" and (levels == 255).all():
            continue  # opaque throughout: read by luma, which is black
        np.testing.assert_allclose(
            read_mask(path, invert=invert), expected, atol=1e-6, err_msg=path.name
        )


@QUICK
@given(seed=SEEDS, near=st.floats(0.01, 1.0), span=st.floats(2.0, 1000.0))
def test_a_depth_buffer_gives_its_metres_back(seed: int, near: float, span: float) -> None:
    far = near * span
    metres = np.random.default_rng(seed).uniform(near, 0.99 * far, (1, 6, 8))
    buffer = (1 - near / metres) / (1 - near / far)
    for planes in ({"near": near, "far": far}, {"near": near / 2, "far": far / 2, "extent": 2.0}):
        depth = depth_from_array(buffer, unit="mujoco01", **planes)
        np.testing.assert_allclose(depth.metres, metres, rtol=1e-5)


@QUICK
@given(seed=SEEDS, focal=st.floats(4.0, 200.0), flip=st.booleans())
def test_ray_depth_gives_the_plane_back(seed: int, focal: float, flip: bool) -> None:
    planar = np.random.default_rng(seed).uniform(0.5, 20.0, (2, 9, 13)).astype(np.float32)
    x = (np.arange(13) + 0.5 - 6.0) / focal
    y = (np.arange(9) + 0.5 - 4.5) / focal
    ray = planar * np.sqrt(1 + x[None] ** 2 + y[:, None] ** 2)
    depth = depth_from_array(
        ray[:, ::-1] if flip else ray,
        unit="m",
        kind="ray",
        intrinsics=(focal, focal, 6.0, 4.5),
        flip_vertical=flip,
    )
    np.testing.assert_allclose(depth.metres, planar, rtol=1e-5)


@QUICK
@given(
    names=st.lists(st.text("abc_12", min_size=1, max_size=5), min_size=1, max_size=6, unique=True),
    default=st.floats(0, 1),
)
def test_every_class_follows_one_line_of_a_rule(names: list[str], default: float) -> None:
    first = names[0]
    rule = {first: 0.25, "a*": 0.5, "default": default}
    if not any(name.startswith("a") for name in names):
        del rule["a*"]
    found = resolve_class_rule(rule, names, where="weight")
    assert set(found) == set(names)
    for name, value in found.items():
        expected = 0.25 if name == first else 0.5 if name.startswith("a") else default
        assert value == expected
