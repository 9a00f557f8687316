from __future__ import annotations

import json
import logging
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.errors import ConfigError, MediaError, ShapeError
from cosmos_transfer.inputs.class_colors import CARLA_CLASSES, KNOWN_COLORS
from cosmos_transfer.inputs.labels import parse_labels
from cosmos_transfer.inputs.segmentation import (
    class_color,
    colorize,
    probe_segmentation,
    read_segmentation,
    segmentation_from_array,
)
from cosmos_transfer.shapes import Size
from tests.unit.inputs.media_files import smooth_frames, write_pictures, write_video


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def blocks(colors: np.ndarray, size: int = 8) -> np.ndarray:
    """One square per colour, in rows of eight."""
    rows = -(-len(colors) // 8)
    picture = np.zeros((rows, 8, colors.shape[-1]), colors.dtype)
    picture.reshape(rows * 8, -1)[: len(colors)] = colors
    return picture.repeat(size, 0).repeat(size, 1)


# ------------------------------------------------------------------------- colours of classes
def test_the_colour_of_a_class_is_a_fixed_function_of_its_name():
    # Numbers, not expressions: a change here changes what trained models see.
    assert class_color("robot") == (0, 220, 220)
    assert class_color("Table") == (230, 180, 80)
    assert class_color("toaster") == (103, 72, 168)
    assert class_color("vegetation") == class_color("tree") == (107, 142, 35)
    assert class_color("Road Line") == class_color("lane") == (157, 234, 50)
    assert class_color("#0a141e") == (10, 20, 30)
    assert class_color("background") == class_color("unlabelled") == (0, 0, 0)


def test_the_words_of_the_training_scenes_are_far_apart():
    words = ["table", "wall", "floor", "robot", "gripper", "box", "cylinder", "ball"]
    colors = np.array([class_color(word) for word in words], float)
    distance = np.linalg.norm(colors[:, None] - colors[None], axis=-1)
    assert distance[~np.eye(len(words), dtype=bool)].min() > 60


def test_parts_stay_near_the_thing_they_belong_to():
    whole = np.array(class_color("gripper"))
    parts = {class_color(f"gripper0_right_{part}_vis") for part in "abcdefgh"}
    assert len(parts) == 8
    for part in parts:
        # 14 of spread, and up to 14 more where the base colour lies at the edge of the range
        assert np.abs(np.array(part) - whole).max() <= 28


def test_unknown_classes_are_never_near_black():
    for index in range(500):
        assert max(class_color(f"thing number {index}x{index * 7919}")) >= 140


def test_carla_colours_are_the_published_ones():
    assert class_color("Car") == (0, 0, 142)
    assert class_color("TrafficLight") == class_color("traffic light") == (250, 170, 30)
    assert [name for name, _ in CARLA_CLASSES].index("guardrail") == 28
    assert KNOWN_COLORS["pedestrian"] == (220, 20, 60)


# ------------------------------------------------------------------------- label tables
@pytest.mark.parametrize(
    "content",
    [
        {"(29, 0, 0, 255)": {"class": "palm"}},
        {"(29,0,0,255)": {"class": "palm"}},
        {"( 29 ,0,  0, 255 )": "palm"},
        {"[29, 0, 0, 255]": {"name": "palm"}},
        {"#1d0000": "palm"},
        {"segmentation_mapping": {"palm": [29, 0, 0, 255]}},
        {"palm": [29, 0, 0]},
        [{"name": "palm", "color": [29, 0, 0]}],
        {"classes": [{"name": "palm", "rgb": [29, 0, 0]}]},
        {"idToLabels": {"(29, 0, 0, 255)": {"class": "palm"}}},
    ],
)
def test_every_dialect_of_colour_tables_says_the_same(content):
    (label,) = parse_labels(content, where="x")
    assert (label.name, label.color, label.id) == ("palm", (29, 0, 0, 255), None)


@pytest.mark.parametrize(
    "content",
    [
        {"7": {"class": "palm"}},
        {"7": "palm"},
        [{"id": 7, "name": "palm"}],
        {"palm": 7},
        {"idToLabels": {"7": {"class": "palm"}}},
    ],
)
def test_every_dialect_of_id_tables_says_the_same(content):
    (label,) = parse_labels(content, where="x")
    assert (label.name, label.id) == ("palm", 7)


@pytest.mark.parametrize(
    "content",
    ["palm", {}, [], {"(1, 2)": "palm"}, {"(1, 2, 300)": "palm"}, {"7": {"a": "b", "c": "d"}}, [7]],
)
def test_what_is_no_table_is_refused(content):
    with pytest.raises(ConfigError, match="expected a label table"):
        parse_labels(content, where="labels.json")


def test_no_label_is_evaluated():
    with pytest.raises(ConfigError):
        parse_labels({"(1, 2, __import__('os').getpid())": {"class": "a"}}, where="x")


# ------------------------------------------------------------------------- ids
def test_id_pictures_keep_their_ids_and_get_names(tmp_path):
    ids = np.array([[[0, 1], [2, 7]]] * 3, np.uint8)
    write_pictures(tmp_path / "seg", ids)
    clip = read_segmentation(tmp_path / "seg", labels={"1": "robot", "7": "table"})
    assert clip.ids.dtype == np.int32
    assert (clip.ids[0] == [[0, 1], [2, 7]]).all()
    assert clip.names == {0: "unlabelled", 1: "robot", 2: "class_2", 7: "table"}


def test_sixteen_bit_ids_are_read_unchanged(tmp_path):
    write_pictures(tmp_path, np.array([[[300, 1500, 65535]]], np.uint16))
    assert read_segmentation(tmp_path).ids.tolist() == [[[300, 1500, 65535]]]


def test_palette_pictures_are_read_by_index(tmp_path):
    picture = Image.fromarray(np.array([[0, 1, 5]], np.uint8), mode="P")
    picture.putpalette([9, 9, 9] * 256)
    picture.save(tmp_path / "0.png")
    assert read_segmentation(tmp_path).ids.tolist() == [[[0, 1, 5]]]


@pytest.mark.parametrize("shape", ["h w", "f h w", "f h w 1"])
def test_id_arrays_of_every_shape(tmp_path, shape):
    ids = np.array([[1, 2]], np.uint16)
    full = {"h w": ids, "f h w": ids[None], "f h w 1": ids[None, ..., None]}[shape]
    np.save(tmp_path / "ids.npy", full)
    assert read_segmentation(tmp_path / "ids.npy").ids.tolist() == [[[1, 2]]]


def test_mujoco_pairs_are_read_by_object_with_background_unlabelled():
    pairs = np.array([[[[-1, -1], [4, 5]]]], np.int32)
    clip = segmentation_from_array(pairs, names={4: "box"})
    assert clip.ids.tolist() == [[[-1, 4]]]
    assert clip.names == {-1: "unlabelled", 4: "box"}
    assert colorize(clip)[0, 0].tolist() == [[0, 0, 0], list(class_color("box"))]
    assert segmentation_from_array(pairs[0]).ids.tolist() == [[[-1, 4]]]  # one frame


def test_ids_two_pixels_wide_are_no_pairs():
    ids = np.array([[[1, 0], [5, 5]], [[0, 0], [7, 1]]], np.int32)
    assert (segmentation_from_array(ids).ids == ids).all()
    with pytest.raises(ShapeError, match="class ids"):
        segmentation_from_array(np.array(3, np.int32))


def test_ids_of_one_class_are_merged():
    clip = segmentation_from_array(
        np.array([[1, 2, 3]], np.uint8), names={1: "car", 2: "road", 3: "car"}
    )
    assert clip.ids.tolist() == [[[1, 2, 1]]]
    assert clip.names == {1: "car", 2: "road"}


def test_ids_whose_meaning_changes_from_frame_to_frame_are_merged_by_name(tmp_path):
    write_pictures(tmp_path / "seg", np.array([[[1, 2]], [[1, 2]]], np.uint8), first=16)
    write_json(tmp_path / "labels" / "l_16.json", {"1": {"class": "robot"}, "2": {"class": "box"}})
    write_json(tmp_path / "labels" / "l_17.json", {"1": {"class": "box"}, "2": {"class": "robot"}})
    clip = read_segmentation(tmp_path / "seg", labels=tmp_path / "labels")
    named = [[clip.names[i] for i in frame[0]] for frame in clip.ids.tolist()]
    assert named == [["robot", "box"], ["box", "robot"]]


def test_floats_are_no_ids(tmp_path):
    np.save(tmp_path / "ids.npy", np.zeros((1, 2, 2), np.float32))
    with pytest.raises(ShapeError, match="whole numbers"):
        read_segmentation(tmp_path / "ids.npy")


# ------------------------------------------------------------------------- coloured pictures
def isaac_frames(tmp_path, tables, colors, *, first=16, label_first=None):
    """Isaac's two folders: RGBA pictures and one label table per frame."""
    for index, (table, row) in enumerate(zip(tables, colors, strict=True)):
        folder = tmp_path / "seg"
        folder.mkdir(exist_ok=True)
        picture = Image.fromarray(np.array([row], np.uint8), mode="RGBA")
        picture.save(folder / f"semantic_segmentation_{index + first:06d}.png")
        number = index + (first if label_first is None else label_first)
        name = f"semantic_segmentation_labels_{number:06d}.json"
        write_json(tmp_path / "labels" / name, {k: {"class": v} for k, v in table.items()})
    return tmp_path / "seg", tmp_path / "labels"


def test_colours_that_change_between_frames_are_merged_by_class_name(tmp_path):
    seg, labels = isaac_frames(
        tmp_path,
        [{"(9, 0, 0, 255)": "robot", "(8,0,0,255)": "box"}, {"(9, 0, 0, 255)": "box"}],
        [[[9, 0, 0, 255], [8, 0, 0, 255]], [[9, 0, 0, 255], [9, 0, 0, 255]]],
    )
    clip = read_segmentation(seg, labels=labels)
    assert [[clip.names[i] for i in f[0]] for f in clip.ids.tolist()] == [
        ["robot", "box"],
        ["box", "box"],
    ]
    assert clip.snapped_share == 0
    assert probe_segmentation(seg, labels=labels) == (2, Size(1, 2))


def test_background_and_unlabelled_black_are_told_apart_by_alpha(tmp_path):
    seg, labels = isaac_frames(
        tmp_path,
        [{"(0, 0, 0, 0)": "BACKGROUND", "(0, 0, 0, 255)": "UNLABELLED"}],
        [[[0, 0, 0, 0], [0, 0, 0, 255]]],
    )
    clip = read_segmentation(seg, labels=labels)
    assert [clip.names[i] for i in clip.ids[0, 0]] == ["BACKGROUND", "UNLABELLED"]


def test_label_files_beside_the_pictures_are_found(tmp_path):
    seg, labels = isaac_frames(tmp_path, [{"(9, 0, 0, 255)": "robot"}], [[[9, 0, 0, 255]] * 2])
    for file in labels.iterdir():
        file.rename(seg / file.name)
    assert "robot" in read_segmentation(seg).names.values()


def test_label_tables_must_match_in_number_and_numbering(tmp_path):
    table = {"(9, 0, 0, 255)": "robot"}
    row = [[9, 0, 0, 255]]
    seg, labels = isaac_frames(tmp_path, [table] * 3, [row] * 3, label_first=17)
    for read in (read_segmentation, probe_segmentation):
        with pytest.raises(ShapeError, match=r"numbered like the frames, 16 to 18, got 17 to 19"):
            read(seg, labels=labels)
    (seg / "semantic_segmentation_000018.png").unlink()
    with pytest.raises(ShapeError, match=r"each of the 2 frames, got 3"):
        read_segmentation(seg, labels=labels)


def test_isaac_ids_in_colour_channels_are_decoded(tmp_path):
    write_pictures(tmp_path, np.array([[[[44, 1, 0, 0], [7, 0, 0, 0]]]], np.uint8))
    clip = read_segmentation(tmp_path, labels={"300": {"class": "door"}, "7": {"class": "box"}})
    assert [clip.names[i] for i in clip.ids[0, 0]] == ["door", "box"]


def test_colours_near_a_label_are_snapped_and_strange_ones_are_unlabelled(tmp_path, caplog):
    row = [[200, 0, 0]] * 7 + [[195, 3, 0], [0, 200, 200], [200, 0, 0]]
    write_pictures(tmp_path, np.array([[row]], np.uint8))
    with caplog.at_level(logging.WARNING):
        clip = read_segmentation(tmp_path, labels={"robot": [200, 0, 0]})
    assert [clip.names[i] for i in clip.ids[0, 0]] == ["robot"] * 8 + ["unlabelled", "robot"]
    assert clip.snapped_share == pytest.approx(0.1)
    assert any("10.00%" in n and "(0, 200, 200)" in n for n in clip.notes)
    assert "unlabelled" in caplog.text


def test_a_table_of_other_pictures_is_refused(tmp_path):
    write_pictures(tmp_path, np.full((1, 4, 4, 3), 250, np.uint8))
    with pytest.raises(ConfigError, match=r"colours that the label table knows.*\(250, 250, 250\)"):
        read_segmentation(tmp_path, labels={"robot": [9, 0, 0]})


def test_colours_without_a_table_keep_their_colour(tmp_path):
    pixels = np.array([[[[10, 20, 30], [200, 100, 0]]]], np.uint8)
    write_pictures(tmp_path, pixels)
    clip = read_segmentation(tmp_path)
    assert sorted(clip.names.values()) == ["#0a141e", "#c86400"]
    assert (colorize(clip) == pixels).all()


def test_a_photograph_is_no_segmentation(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (1, 40, 40, 3), dtype=np.uint8)
    write_pictures(tmp_path, noise)
    with pytest.raises(MediaError, match="photograph"):
        read_segmentation(tmp_path)


def test_carla_tags_and_carla_colours_agree(tmp_path):
    tags = np.zeros((1, 1, 29, 3), np.uint8)
    tags[0, 0, :, 0] = np.arange(29)
    colors = np.array([[[rgb for _, rgb in CARLA_CLASSES]]], np.uint8)
    write_pictures(tmp_path / "tags", tags)
    write_pictures(tmp_path / "colors", colors)
    by_tag = read_segmentation(tmp_path / "tags", labels="carla")
    by_color = read_segmentation(tmp_path / "colors", labels="carla")
    names = [name for name, _ in CARLA_CLASSES]
    assert [by_tag.names[i] for i in by_tag.ids[0, 0]] == names
    assert [by_color.names[i] for i in by_color.ids[0, 0]] == names
    assert (colorize(by_color) == colors).all()


def test_carla_instances_are_read_by_their_tag(tmp_path):
    """The tag is in red, the instance in green and blue."""
    instances = np.zeros((1, 2, 4, 3), np.uint8)
    instances[..., 0] = [[14, 14, 12, 1], [14, 14, 12, 1]]
    instances[..., 1:] = np.random.default_rng(0).integers(1, 256, (1, 2, 4, 2))
    write_pictures(tmp_path, instances)
    clip = read_segmentation(tmp_path, labels="carla")
    assert [clip.names[i] for i in clip.ids[0, 0]] == ["car", "car", "pedestrian", "roads"]


def test_old_carla_tags_mean_other_classes(tmp_path):
    write_pictures(tmp_path, np.array([[[[10, 0, 0], [7, 0, 0]]]], np.uint8))
    old = read_segmentation(tmp_path, labels="carla-0.9.13")
    new = read_segmentation(tmp_path, labels="carla-0.9.15")
    assert [old.names[i] for i in old.ids[0, 0]] == ["car", "roads"]
    assert [new.names[i] for i in new.ids[0, 0]] == ["terrain", "trafficlight"]


# ------------------------------------------------------------------------- through a lossy codec
PALETTE = np.array(
    [[r, g, b] for r in (20, 90, 160, 230) for g in (20, 125, 230) for b in (20, 90, 160, 230)][
        :40
    ],
    np.uint8,
)


def test_a_lossy_palette_video_is_snapped_to_its_table(tmp_path):
    picture = blocks(PALETTE)
    path = write_video(tmp_path / "seg.mp4", np.stack([picture] * 3), options={"crf": "23"})
    table = {f"class {i:02d}": color.tolist() for i, color in enumerate(PALETTE)}
    clip = read_segmentation(path, labels=table)
    expected = np.arange(40).repeat(8).reshape(5, 64).repeat(8, axis=0)
    names = np.vectorize(clip.names.get)(clip.ids)
    right = names == np.array([f"class {i:02d}" for i in range(40)])[expected]
    assert right.mean() > 0.9
    # Away from the borders, where 4:2:0 blends, every label is right.
    inner = (np.indices(picture.shape[:2]) % 8 >= 2).all(0) & (
        np.indices(picture.shape[:2]) % 8 < 6
    ).all(0)
    assert right[:, inner].all()
    assert clip.snapped_share > 0.1
    assert any("snapped" in note for note in clip.notes)


def test_a_lossless_video_is_exact(tmp_path):
    picture = np.stack([blocks(PALETTE)] * 2)
    path = write_video(
        tmp_path / "seg.mkv", picture, codec="ffv1", pixel_format="bgr0", options={"level": "3"}
    )
    clip = read_segmentation(path)
    assert clip.snapped_share == 0
    assert (colorize(clip) == picture).all()


def test_ids_too_alike_for_a_lossy_video_are_warned_about(tmp_path):
    colors = np.array([[i * 2 + 9, 0, 0] for i in range(40)], np.uint8)
    path = write_video(tmp_path / "seg.mp4", np.stack([blocks(colors)] * 2))
    table = {f"link {i}": color.tolist() for i, color in enumerate(colors)}
    clip = read_segmentation(path, labels=table)
    assert any("too alike for a lossy video" in note for note in clip.notes)


def test_the_palette_of_a_video_without_a_table_is_found(tmp_path):
    colors = PALETTE[::5]
    picture = blocks(colors, size=12)
    path = write_video(tmp_path / "seg.mp4", np.stack([picture] * 4), options={"crf": "18"})
    shown = colorize(read_segmentation(path))
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) == len(colors)
    error = np.abs(shown.astype(int) - picture)
    assert np.median(error) <= 2
    assert (error.max(-1) <= 6).mean() > 0.9


def test_a_filmed_clip_is_no_palette_video(tmp_path):
    noise = np.random.default_rng(1).integers(0, 256, (2, 48, 64, 3), dtype=np.uint8)
    path = write_video(tmp_path / "film.mp4", noise, rate=Fraction(10))
    with pytest.raises(MediaError, match="photograph"):
        read_segmentation(path)
    path = write_video(tmp_path / "waves.mp4", smooth_frames(2, 96, 128))
    with pytest.raises(MediaError, match="photograph"):
        read_segmentation(path)


def test_a_video_needs_a_table_of_colours(tmp_path):
    path = write_video(tmp_path / "seg.mp4", np.zeros((1, 16, 16, 3), np.uint8))
    for read in (read_segmentation, probe_segmentation):
        with pytest.raises(ConfigError, match="table of colours"):
            read(path, labels={"7": "robot"})


# ------------------------------------------------------------------------- real clips
def test_the_robot_clip_of_isaac_is_read_without_loss(shared_media, tmp_path):
    robot = shared_media / "robot_isaac"
    assert probe_segmentation(robot / "segmentation", labels=robot / "segmentation_label") == (
        100,
        Size(800, 1280),
    )
    for index, number in enumerate(range(16, 20)):
        for folder, ending in (("segmentation", "png"), ("segmentation_label", "json")):
            (tmp_path / folder).mkdir(exist_ok=True)
            (source,) = (robot / folder).glob(f"*{number:06d}.{ending}")
            (tmp_path / folder / source.name).symlink_to(source)
        assert index < 4
    clip = read_segmentation(tmp_path / "segmentation", labels=tmp_path / "segmentation_label")
    assert clip.ids.shape == (4, 800, 1280)
    assert clip.snapped_share == 0
    assert clip.notes == ()
    table = next(i for i, name in clip.names.items() if name == "table_main_group_top_visual")
    pixels = np.asarray(Image.open(next((robot / "segmentation").glob("*16.png"))))
    is_table = (pixels == [132, 0, 0, 255]).all(-1)
    assert is_table.any()
    assert ((clip.ids[0] == table) == is_table).all()
