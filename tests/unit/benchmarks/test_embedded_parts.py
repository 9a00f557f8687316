from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from benchmarks.embedded import attributes
from benchmarks.embedded.arm_scene import JOINTS, arm_path, class_of, draw_view, scene_xml
from benchmarks.embedded.attributes import (
    ABSENT,
    ATTRIBUTES,
    VALUES,
    AttributeClassifier,
    AttributeNetwork,
    distance,
    kept_classifier,
    mean_pairwise,
    right,
    training_pictures,
)
from benchmarks.embedded.bench import SIX_LOOKS
from benchmarks.embedded.classifier import summarise_classifier
from benchmarks.embedded.diversity import summarise_prompt_diversity
from benchmarks.embedded.mujoco_scenes import METRICS as MUJOCO_METRICS
from benchmarks.embedded.mujoco_scenes import OURS, OWN, WITHOUT, summarise_mujoco
from benchmarks.embedded.regions import (
    METRICS,
    REGIONS,
    SETTINGS,
    region_blur_ssim,
    region_edge_f1,
    summarise_regions,
)
from cosmos_transfer.errors import NumericsError
from cosmos_transfer.shapes import Size
from cosmos_transfer.training.scenes import CLASS_NAMES

SMALL = Size(32, 48)


def noisy_clip(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (5, 32, 48, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def classifier() -> AttributeClassifier:
    torch.manual_seed(0)
    return AttributeClassifier(AttributeNetwork())


def test_pictures_to_learn_from_are_labelled_by_their_look() -> None:
    pictures, labels = training_pictures(SMALL, 3)
    assert pictures.shape == (12, 32, 48, 3)
    assert labels.shape == (12, 4)
    indoors = labels[:, ATTRIBUTES.index("weather")] == ABSENT
    assert (labels[indoors][:, [ATTRIBUTES.index("table"), ATTRIBUTES.index("wall")]] >= 0).all()
    assert (labels[~indoors][:, [ATTRIBUTES.index("table"), ATTRIBUTES.index("wall")]] < 0).all()
    night = labels[:, 0] == VALUES["time_of_day"].index("night")
    assert pictures[night].mean() < pictures[~night].mean()


def test_training_gives_the_same_weights_each_time_and_learns() -> None:
    settings = {"num_steps": 4, "num_scenes": 1}
    first, second = (attributes.train(SMALL, **settings).state_dict() for _ in range(2))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    torch.manual_seed(0)
    untrained = AttributeNetwork().state_dict()
    assert not torch.equal(first["heads.wall.weight"], untrained["heads.wall.weight"])


def test_a_classifier_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "train", lambda *_, **__: AttributeNetwork())
    first = kept_classifier(tmp_path, SMALL).read(noisy_clip(0))
    monkeypatch.setattr(attributes, "train", None)
    assert kept_classifier(tmp_path, SMALL).read(noisy_clip(0)) == first


def test_the_distance_is_of_pairs_and_of_a_region(classifier: AttributeClassifier) -> None:
    first, second = noisy_clip(0), noisy_clip(1)
    second[:, :, :24] = first[:, :, :24]
    a, b = (classifier.directions(clip) for clip in (first, second))
    assert distance(a, a) == pytest.approx(0.0, abs=1e-6)
    assert distance(a, b) == pytest.approx(distance(b, a))
    assert 0.0 < distance(a, b) < 4.0
    left = np.zeros((5, 32, 48), bool)
    left[:, :, :16] = True
    right_side = np.zeros_like(left)
    right_side[:, :, 32:] = True
    assert distance(a, b, left) < 0.5 * distance(a, b, right_side)
    assert mean_pairwise([a, a, b]) == pytest.approx(2 / 3 * distance(a, b), rel=1e-4)


def test_only_attributes_that_a_look_has_are_read() -> None:
    read = {"time_of_day": "day", "weather": "fog", "table": "wood", "wall": "brick"}
    assert right(read, {"time_of_day": "night", "weather": "fog"}) == {
        "time_of_day": False,
        "weather": True,
    }


def test_accuracy_is_a_share_of_what_is_read_off_true_renders() -> None:
    clips = [
        {
            "outputs": {"time_of_day": True, "weather": False},
            "true_renders": {"time_of_day": True, "weather": True},
        },
        {
            "outputs": {"time_of_day": True, "wall": True},
            "true_renders": {"time_of_day": True, "wall": True},
        },
    ]
    found = summarise_classifier(clips)
    assert found["ratio"]["value"] == pytest.approx(0.75)
    assert found["attributes"]["weather"] == {"outputs": 0, "true_renders": 1, "num_clips": 1}
    assert "table" not in found["attributes"]


def test_the_six_looks_hold_every_value_and_differ() -> None:
    for family, names in (("driving", ("time_of_day", "weather")), ("tabletop", ATTRIBUTES[2:])):
        looks = [tuple(sorted(look.items())) for look in SIX_LOOKS[family].values()]
        assert len(set(looks)) == 6
        for name in names:
            assert {v for look in looks for n, v in look if n == name} == set(VALUES[name])


def test_diversity_is_summed_over_clips() -> None:
    clips = [
        {
            "outputs": apart,
            "true_renders": 0.4,
            "read_outputs": [read, 12],
            "read_true_renders": [12, 12],
        }
        for apart, read in ((0.2, 9), (0.4, 12))
    ]
    found = summarise_prompt_diversity(clips)
    assert found["ratio"]["value"] == pytest.approx(0.75)
    assert found["attributes_read"] == {"outputs": [21, 24], "true_renders": [24, 24]}


def test_a_region_sees_only_its_own_edges_and_colours() -> None:
    edges = np.zeros((1, 8, 8), bool)
    edges[:, 2, :] = True
    wanted = edges.copy()
    wanted[:, 2, 4:] = False
    wanted[:, 6, 4:] = True
    left = np.zeros((1, 8, 8), bool)
    left[:, :, :4] = True
    assert region_edge_f1(edges, wanted, left) == 1.0
    assert region_edge_f1(edges, wanted, ~left) == 0.0
    with pytest.raises(NumericsError, match="an edge"):
        region_edge_f1(edges, wanted, np.zeros_like(left))

    reference, frames = noisy_clip(0), noisy_clip(0)
    frames[:, :, 24:] = 255 - frames[:, :, 24:]
    where = np.zeros((5, 32, 48), bool)
    where[:, :, :24] = True
    assert region_blur_ssim(frames, reference, where) == pytest.approx(1.0)
    assert region_blur_ssim(frames, reference, ~where) < 0.9


def test_directions_are_held_against_the_published_ones() -> None:
    first, second = SETTINGS
    clip = {
        setting: {region: dict.fromkeys(METRICS, 0.5) for region in REGIONS} for setting in SETTINGS
    }
    clip[first]["foreground"] = clip[first]["foreground"] | {"edge_f1": 0.7, "blur_ssim": 0.3}
    found = summarise_regions([clip, clip])
    said = {(each["metric"], each["region"]): each["agrees"] for each in found["directions"]}
    assert said["edge_f1", "foreground"] is True  # 0.27 against 0.17
    assert said["blur_ssim", "foreground"] is False  # 0.81 against 0.68
    assert said["edge_f1", "background"] is False  # nothing changed
    assert said["mask_miou", "foreground"] is None  # 0.77 against 0.77
    assert found["rows"][second]["background"]["diversity"]["value"] == 0.5


def test_every_geom_of_an_arm_scene_has_a_class_and_every_joint_is_there() -> None:
    tree = ElementTree.fromstring(scene_xml(np.random.default_rng(3)))
    classes = {class_of(geom.attrib["name"]) for geom in tree.iter("geom")}
    assert {CLASS_NAMES[number] for number in classes} >= {"table", "robot", "gripper", "wall"}
    assert tuple(joint.attrib["name"] for joint in tree.iter("joint")) == JOINTS
    with pytest.raises(KeyError):
        class_of("teapot/0")


def test_mujoco_takes_the_arm_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "disable")  # nothing is drawn
    import mujoco

    rng = np.random.default_rng(0)
    model = mujoco.MjModel.from_xml_string(scene_xml(rng))
    assert model.nq == len(JOINTS)
    assert scene_xml(np.random.default_rng(0)) != scene_xml(np.random.default_rng(1))


def test_the_arm_moves_smoothly_and_further_frames_go_on_from_there() -> None:
    short, long = (arm_path(np.random.default_rng(1), count) for count in (9, 17))
    np.testing.assert_array_equal(long[:9], short)
    assert 0.0 < np.abs(np.diff(long, axis=0)).max() < 0.1
    view = draw_view(np.random.default_rng(1), 17)
    assert np.abs(np.diff(view.azimuth)).max() <= 0.5


def test_outputs_are_held_against_the_simulators_own_frames() -> None:
    levels = {OURS: 0.3, WITHOUT: 0.1, OWN: 0.5}
    clip = {name: dict.fromkeys(MUJOCO_METRICS, level) for name, level in levels.items()}
    found = summarise_mujoco([clip, clip])
    assert found["ratios"]["mask_miou"]["value"] == pytest.approx(0.6)
    assert found["rows"][WITHOUT]["edge_f1"]["value"] == pytest.approx(0.1)
