"""The primitives' tab without a browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

from apps.primitives import callbacks
from ngpc.data.images import Image
from ngpc.errors import ConfigError, NgpcError


def test_a_fit_is_shown_ever_better() -> None:
    small = Image(rgb_srgb=callbacks.sample_picture().rgb_srgb[::8, ::8])
    shown = list(callbacks.fit_picture(small, num_steps=20, backend="reference"))
    assert [stage.curve[-1][0] for stage in shown] == [4, 8, 16, 20]
    values = [value for _, value in shown[-1].curve]
    assert values == sorted(values)
    assert values[-1] > 16
    assert shown[-1].picture.shape == (16, 24, 3)
    assert shown[0].curve == shown[-1].curve[:1]


@pytest.mark.parametrize(
    ("num_steps", "wanted"), [(4, (4,)), (3, (3,)), (10, (4, 8, 10)), (16, (4, 8, 16))]
)
def test_stages_double_and_end_where_asked(num_steps: int, wanted: tuple[int, ...]) -> None:
    assert callbacks.stages(num_steps) == wanted


def test_steps_have_a_limit() -> None:
    with pytest.raises(ConfigError, match="1 to 1024"):
        list(callbacks.fit_picture(callbacks.sample_picture(), num_steps=10**6))


def test_pictures_are_made_small_and_other_files_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    PillowImage.fromarray(np.zeros((300, 512, 3), np.uint8)).save(path)
    loaded = callbacks.load_picture(path)
    assert (loaded.height, loaded.width) == (150, 256)
    path.write_text("no picture")
    with pytest.raises(NgpcError):
        callbacks.load_picture(path)


def test_the_curve_says_its_last_value() -> None:
    picture = callbacks.curve_picture(((4, 12.0), (8, 18.25)))
    assert "18.2 dB after 8 steps" in picture
    assert picture.count("<circle") == 2
    assert callbacks.curve_picture(()) == ""
