from __future__ import annotations

import numpy as np
import pytest

from cosmos_transfer.errors import ConfigError, ShapeError
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.segmentation import SegmentationClip
from cosmos_transfer.shapes import Size
from cosmos_transfer.weights.maps import WeightMaps, area_resize, build_weight_maps

SIZE = Size(8, 12)


def build(*controls: ControlRequest, num_frames: int = 5, **settings: object) -> WeightMaps:
    return build_weight_maps(controls, num_frames=num_frames, size=SIZE, **settings)


def left_half(num_frames: int = 1, size: Size = SIZE) -> np.ndarray:
    mask = np.zeros((num_frames, size.height, size.width), np.float32)
    mask[:, :, : size.width // 2] = 1.0
    return mask


def kitchen(num_frames: int = 5) -> SegmentationClip:
    ids = np.full((num_frames, 8, 12), 1, np.int32)
    ids[:, 2:6, 3:6] = 2
    ids[:, 6:, 6:] = 7
    return SegmentationClip(ids=ids, names={1: "table", 2: "Robot", 7: "red box"})


# -------------------------------------------------------------------------------- what a weight is
def test_a_number_a_constant_map_and_a_mask_of_ones_are_the_same_bits():
    number = build(ControlRequest(name="edge", weight=0.3))
    constant = build(ControlRequest(name="edge", weight=np.full((5, 8, 12), 0.3, np.float32)))
    masked = build(ControlRequest(name="edge", weight=0.3, mask=np.ones((4, 6), np.float32)))
    still = build(ControlRequest(name="edge", weight=np.full((16, 24), 0.3, np.float32)))
    for other in (constant, masked, still):
        np.testing.assert_array_equal(number.values, other.values)


def test_a_mask_scales_the_weight_and_keeps_soft_values():
    mask = left_half()
    mask[0, :, 0] = 0.25
    maps = build(ControlRequest(name="seg", weight=0.5, mask=mask))
    assert maps.values[0, 3, 4].tolist() == [0.125] + [0.5] * 5 + [0.0] * 6


def test_invert_turns_the_mask_round():
    plain = build(ControlRequest(name="seg", mask=left_half()))
    inverted = build(ControlRequest(name="seg", mask=left_half(), invert=True))
    np.testing.assert_array_equal(plain.values + inverted.values, 1.0)


def test_invert_without_a_mask_is_refused():
    with pytest.raises(ConfigError, match="invert without a mask"):
        build(ControlRequest(name="seg", invert=True))


def test_a_moving_mask_stays_in_register_with_the_frames():
    mask = np.zeros((5, 8, 12), np.float32)
    for frame in range(5):
        mask[frame, frame] = 1.0
    values = build(ControlRequest(name="edge", mask=mask)).values[0]
    np.testing.assert_array_equal(values, mask)


def test_a_ramp_runs_from_the_first_frame_to_the_last():
    maps = build(ControlRequest(name="edge", weight=0.5, ramp=(1.0, 0.0)))
    assert maps.values[0, :, 0, 0].tolist() == [0.5, 0.375, 0.25, 0.125, 0.0]
    still = build(ControlRequest(name="edge", weight=0.5, ramp=(0.5, 1.0)), num_frames=1)
    assert still.values[0, 0, 0, 0] == 0.25


def test_maps_stand_in_the_order_of_the_controls():
    maps = build(ControlRequest(name="seg", weight=0.1), ControlRequest(name="edge", weight=0.2))
    assert maps.names == ("seg", "edge")
    np.testing.assert_allclose(maps.values[:, 0, 0, 0], [0.1, 0.2])


def test_no_controls_give_no_maps():
    assert build().values.shape == (0, 5, 8, 12)
    assert build().largest_sum() == 0.0


def test_zero_is_a_weight_and_such_a_control_is_not_active():
    maps = build(ControlRequest(name="edge", weight=0.0), ControlRequest(name="seg", weight=0.5))
    assert maps.active == ("seg",)


# ---------------------------------------------------------------------------------------- classes
def test_a_class_rule_gives_every_class_its_weight():
    rule = {"robot": 1.0, "red box": 0.25, "default": 0.5}
    values = build(ControlRequest(name="edge", weight=rule), segmentation=kitchen()).values[0, 2]
    assert (values[3, 4], values[7, 11], values[0, 0]) == (1.0, 0.25, 0.5)


def test_classes_that_are_not_named_and_ids_without_a_name_get_the_default():
    segmentation = SegmentationClip(ids=np.full((5, 8, 12), 9, np.int32), names={2: "robot"})
    maps = build(
        ControlRequest(name="edge", weight={"robot": 1.0, "default": 0.5}),
        segmentation=segmentation,
    )
    assert (maps.values == 0.5).all()


def test_without_a_default_other_classes_get_nothing():
    maps = build(ControlRequest(name="edge", weight={"robot": 1.0}), segmentation=kitchen())
    assert maps.values[0].sum() == 5 * 12


def test_an_unknown_class_names_the_nearest_present_one():
    with pytest.raises(ConfigError, match=r"got 'robbot'.*mean 'Robot'.*red box, table"):
        build(ControlRequest(name="edge", weight={"robbot": 1.0}), segmentation=kitchen())


def test_a_class_rule_needs_a_segmentation():
    with pytest.raises(ConfigError, match="no segmentation"):
        build(ControlRequest(name="edge", weight={"robot": 1.0}))


def test_a_class_that_never_appears_selects_nothing():
    segmentation = SegmentationClip(
        ids=np.ones((5, 8, 12), np.int32), names={1: "table", 2: "robot"}
    )
    control = ControlRequest(name="edge", weight={"robot": 1.0})
    with pytest.raises(ConfigError, match="selects nothing"):
        build(control, segmentation=segmentation)
    allowed = ControlRequest(name="edge", weight={"robot": 1.0}, allow_empty=True)
    assert build(allowed, segmentation=segmentation).active == ()


# ------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize("weight", [-0.1, 1.5, 4.0, float("nan"), float("inf")])
def test_numbers_outside_the_range_are_refused(weight):
    with pytest.raises((ConfigError, ValueError), match=r"\[?0"):
        build(ControlRequest(name="edge", weight=weight))


def test_a_map_with_nan_is_refused():
    weight = np.full((8, 12), 0.5, np.float32)
    weight[3, 3] = np.nan
    with pytest.raises(ConfigError):
        build(ControlRequest(name="edge", weight=weight))


@pytest.mark.parametrize(
    "control",
    [
        {"mask": np.zeros((8, 12), np.float32)},
        {"mask": np.ones((8, 12), np.float32), "invert": True},
        {"weight": np.zeros((8, 12), np.float32)},
    ],
    ids=["black-mask", "white-mask-inverted", "black-map"],
)
def test_nothing_selected_is_an_error_unless_allowed(control):
    with pytest.raises(ConfigError, match=r"selects nothing.*allow_empty"):
        build(ControlRequest(name="edge", **control))
    assert build(ControlRequest(name="edge", allow_empty=True, **control)).active == ()


def test_one_white_pixel_is_enough():
    mask = np.zeros((80, 120), np.float32)
    mask[7, 7] = 1.0
    assert build(ControlRequest(name="edge", mask=mask)).values.max() == pytest.approx(0.01)


def test_a_mask_of_another_length_is_refused_with_both_numbers():
    with pytest.raises(ShapeError, match="expected 5 frames to match the clip, got 3"):
        build(ControlRequest(name="edge", mask=left_half(3)))


@pytest.mark.parametrize(
    ("policy", "count", "expected"),
    [
        ("hold", 3, [0, 1, 2, 2, 2]),
        ("loop", 3, [0, 1, 2, 0, 1]),
        ("trim", 7, [0, 1, 2, 3, 4]),
        ("hold", 7, [0, 1, 2, 3, 4]),
    ],
)
def test_length_policies(policy, count, expected):
    mask = np.zeros((count, 8, 12), np.float32)
    mask += (np.arange(count, dtype=np.float32) / 8)[:, None, None]
    maps = build(ControlRequest(name="edge", mask=mask), length_policy=policy)
    assert (maps.values[0, :, 0, 0] * 8).tolist() == expected


def test_trim_does_not_lengthen():
    with pytest.raises(ShapeError, match="got 3"):
        build(ControlRequest(name="edge", mask=left_half(3)), length_policy="trim")


def test_a_mask_of_another_aspect_ratio_is_refused():
    with pytest.raises(ShapeError, match=r"12x8\), got 16x8"):
        build(ControlRequest(name="edge", mask=left_half(size=Size(8, 16))))


def test_a_control_named_twice_is_refused():
    with pytest.raises(ConfigError, match="edge more than once"):
        build(ControlRequest(name="edge"), ControlRequest(name="edge"))


# ------------------------------------------------------------------------------- the maps as value
def test_maps_are_cut_with_the_frames_of_a_chunk():
    mask = np.zeros((5, 8, 12), np.float32)
    mask += (np.arange(5, dtype=np.float32) / 4)[:, None, None]
    cut = build(ControlRequest(name="edge", mask=mask)).at_frames((2, 3, 4, 4, 4))
    assert (cut.values[0, :, 0, 0] * 4).tolist() == [2, 3, 4, 4, 4]


def test_padding_reflects_at_the_bottom_and_the_right():
    maps = build(ControlRequest(name="edge", mask=left_half()))
    padded = maps.padded_to(Size(9, 16))
    assert padded.values[0, 0, 8].tolist() == [1.0] * 6 + [0.0] * 10
    np.testing.assert_array_equal(padded.values[:, :, :8, :12], maps.values)


def test_the_largest_sum_is_before_any_rule():
    maps = build(ControlRequest(name="edge"), ControlRequest(name="seg", mask=left_half()))
    assert maps.largest_sum() == 2.0


def test_maps_outside_their_range_cannot_be_built():
    with pytest.raises(ConfigError):
        WeightMaps(names=("edge",), values=np.full((1, 1, 2, 2), 1.01, np.float32))
    with pytest.raises(ShapeError):
        WeightMaps(names=("edge", "seg"), values=np.ones((1, 1, 2, 2), np.float32))


# ------------------------------------------------------------------------------------- resizing
def test_area_resize_is_the_mean_of_the_covered_area():
    values = np.array([[[0.0, 1.0, 0.0]]], np.float32)
    np.testing.assert_allclose(area_resize(values, Size(1, 2))[0, 0], [1 / 3, 1 / 3])
    np.testing.assert_allclose(area_resize(values, Size(1, 6))[0, 0], [0, 0, 1, 1, 0, 0])
