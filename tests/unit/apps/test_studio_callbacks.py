"""The studio without a browser: sources, masks, weights, requests, the queue."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml

from apps.studio import callbacks, masks, pages, sources, worker
from apps.studio.callbacks import CLASSES, PAINTED, Choice, Look, Studio
from cosmos_transfer.errors import ConfigError, MediaError, TransferError
from cosmos_transfer.jobs.run import work
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.shapes import Size

EDGE = {"edge": Choice(weight=0.5)}
LOOK = Look(prompt="a robot arm on a wooden table", seed=3, steps=1, guidance=1.0)


@pytest.fixture(scope="module")
def studio(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Studio:
    root = tmp_path_factory.mktemp("studio")
    studio = Studio(root=root, model={"name_or_path": str(tiny_checkpoint), "device": "cpu"})
    studio.inputs.mkdir()
    studio.results.mkdir()
    return studio


@pytest.fixture(scope="module")
def scene(studio: Studio) -> sources.Source:
    return callbacks.load_scene(studio, "tabletop")


def write_moving_square(path: Path, *, num_frames: int = 6) -> Path:
    frames = np.random.default_rng(0).integers(60, 90, (num_frames, 64, 96, 3), dtype=np.uint8)
    texture = np.random.default_rng(1).integers(120, 255, (20, 20, 3), dtype=np.uint8)
    for index, frame in enumerate(frames):
        frame[20:40, 10 + 4 * index : 30 + 4 * index] = texture
    return write_clip(path, frames, rate=Fraction(8), codec="ffv1")


# ------------------------------------------------------------------------------------- what goes in


def test_a_scene_brings_its_controls_and_classes(scene: sources.Source) -> None:
    assert scene.controls == ("edge", "depth", "seg", "vis")
    assert (scene.height, scene.width, scene.num_frames) == (64, 96, 9)
    assert {"robot", "table"} <= set(scene.classes)


def test_an_upload_is_known_by_its_content(studio: Studio, tmp_path: Path) -> None:
    clip = write_moving_square(tmp_path / "square.mkv")
    first = callbacks.load_upload(studio, clip)
    again = callbacks.load_upload(studio, clip.rename(tmp_path / "other.mkv"))
    assert first.id == again.id
    assert first.num_frames == 6
    assert first.controls == ("edge", "vis")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.mp4", b"", "an empty file"),
        ("text.mp4", b"not a video at all\n" * 40, "text.mp4"),
    ],
)
def test_a_bad_upload_is_one_sentence_and_leaves_nothing(
    studio: Studio, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    before = set(studio.inputs.iterdir())
    with pytest.raises(TransferError, match=message) as caught:
        callbacks.load_upload(studio, path)
    assert str(studio.inputs) not in str(caught.value)
    assert set(studio.inputs.iterdir()) == before


def test_uploads_over_the_limits_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    clip = write_moving_square(tmp_path / "square.mkv", num_frames=16)
    with pytest.raises(MediaError, match="at most 1 seconds, got 2"):
        sources.check_upload(clip, sources.Limits(duration_s=1.0))
    with pytest.raises(MediaError, match=r"at most 0\.001 MB"):
        sources.check_upload(clip, sources.Limits(size_bytes=1000))


@pytest.mark.parametrize("source_id", ["../secret", "/etc", "", "a/b", "..", "scene-none", None])
def test_a_source_is_found_by_its_id_alone(studio: Studio, source_id: str | None) -> None:
    (studio.root / "secret").mkdir(exist_ok=True)
    (studio.root / "secret" / "source.json").write_text("{}")
    with pytest.raises(ConfigError, match="Load a clip first"):
        callbacks.find_source(studio, source_id)  # type: ignore[arg-type]


def test_a_recording_is_one_of_the_folder(studio: Studio, tmp_path: Path) -> None:
    recorded = Studio(root=studio.root, model=studio.model, recordings=tmp_path)
    scene = callbacks.find_source(studio, callbacks.load_scene(studio, "tabletop").id)
    rgb = tmp_path / "take-1" / "rgb"
    rgb.mkdir(parents=True)
    from PIL import Image

    frames = callbacks._shown_clip(scene.fields["video"], callbacks.shown_size(scene)).frames
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(rgb / f"{index:04d}.png")
    assert callbacks.scene_names(recorded)[-1] == "take-1"
    assert callbacks.load_scene(recorded, "take-1").num_frames == 9
    with pytest.raises(ConfigError, match="expected one of"):
        callbacks.load_scene(recorded, "../take-1")


# ------------------------------------------------------------------------------- what it looks like


def test_every_control_has_a_picture(studio: Studio, scene: sources.Source) -> None:
    pictures = callbacks.frame_pictures(studio, scene.id, 4)
    assert list(pictures) == ["input", "edge", "depth", "seg", "vis"]
    assert all(each.shape == (64, 96, 3) for each in pictures.values())
    softer = callbacks.frame_pictures(studio, scene.id, 4, {"edge": "very_low"})
    assert softer["edge"].sum() > pictures["edge"].sum()


def test_weights_are_capped_and_follow_masks_classes_and_time(
    studio: Studio, scene: sources.Source
) -> None:
    choices = {
        "edge": Choice(weight=1.0),
        "depth": Choice(weight=1.0, start=0.0, end=1.0),
        "seg": Choice(weight=1.0, where=CLASSES, classes=("robot 1.0", "table 0.5")),
    }
    first = callbacks.effective_weights(studio, scene.id, choices, 0)
    last = callbacks.effective_weights(studio, scene.id, choices, 8)
    assert first.names == ("edge", "depth", "seg")
    assert not first.values[1].any()
    assert last.values.sum(axis=0).max() <= 1.0 + 1e-6
    assert last.values[1].mean() > 0.3
    # Full edges beside full robot and no depth: half each; beside half a table: two thirds.
    assert {round(float(each), 3) for each in np.unique(first.values[2])} == {0.0, 0.333, 0.5}


def test_the_heat_map_shows_who_acts(studio: Studio, scene: sources.Source) -> None:
    weights = callbacks.effective_weights(studio, scene.id, {"edge": Choice(weight=1.0)}, 0)
    picture = pages.heat_map(np.zeros((64, 96, 3), np.uint8), weights)
    assert tuple(picture[0, 0]) == tuple(int(0.75 * each) for each in pages.COLORS["edge"])


def test_a_painted_mask_follows_what_it_was_painted_on(studio: Studio, tmp_path: Path) -> None:
    source = callbacks.load_upload(studio, write_moving_square(tmp_path / "square.mkv"))
    layer = np.zeros((128, 192, 4), np.uint8)  # the editor's canvas may be larger than the clip
    layer[40:80, 36:76] = 255  # the square of frame 2
    mask_id, share = callbacks.keep_mask(studio, source.id, {"layers": [layer]}, 2)
    assert share == pytest.approx(400 / (64 * 96), rel=0.2)
    for index in range(6):
        found = callbacks.tracked_frame(studio, source.id, mask_id, index) > 0.5
        wanted = np.zeros((64, 96), bool)
        wanted[20:40, 10 + 4 * index : 30 + 4 * index] = True
        assert (found & wanted).sum() / (found | wanted).sum() > 0.8, index
    choices = {"edge": Choice(weight=0.5, where=PAINTED, mask=mask_id)}
    weights = callbacks.effective_weights(studio, source.id, choices, 0)
    assert weights.values[0, 0, 30, 20] == 0.5
    assert weights.values[0, 0, 30, 80] == 0.0


def test_an_empty_painting_and_a_strange_mask_are_refused(
    studio: Studio, scene: sources.Source
) -> None:
    empty = {"layers": [np.zeros((64, 96, 4), np.uint8)]}
    with pytest.raises(ConfigError, match="something painted"):
        callbacks.keep_mask(studio, scene.id, empty, 0)
    for mask in (None, "../../x", "0123456789ab"):
        choices = {"edge": Choice(weight=1.0, where=PAINTED, mask=mask)}
        with pytest.raises(ConfigError, match="Paint one"):
            callbacks.effective_weights(studio, scene.id, choices, 0)


def test_a_frame_that_does_not_move_keeps_its_mask() -> None:
    still = np.repeat(np.random.default_rng(0).integers(0, 255, (1, 48, 64, 3), np.uint8), 3, 0)
    mask = np.zeros((48, 64), np.float32)
    mask[10:30, 10:30] = 1
    tracked = masks.track_mask(still, mask, 1)
    assert np.array_equal(tracked[0], mask)
    assert np.array_equal(tracked[2], mask)


# -------------------------------------------------------------------------------- what is asked for


@pytest.mark.parametrize("chip", ["robot", "robot 1.5", "1.0", "robot -1", ""])
def test_a_chip_is_a_class_and_a_weight(chip: str) -> None:
    with pytest.raises(ConfigError, match=r"robot 1\.0"):
        callbacks.read_classes([chip])


def test_chips_may_hold_spaces() -> None:
    assert callbacks.read_classes(["lane marking 0.3", "car 1"]) == {"lane marking": 0.3, "car": 1}


@pytest.mark.parametrize(
    ("choices", "look", "message"),
    [
        ({"edge": Choice(weight=0.0)}, LOOK, "Move a slider"),
        (EDGE, Look(prompt=" "), "Write a prompt"),
        (EDGE, Look(prompt="x", variants=99), "variants"),
        ({"edge": Choice(weight=1.0, where=CLASSES)}, LOOK, "expected a class"),
    ],
)
def test_what_cannot_be_made_is_not_queued(
    studio: Studio,
    scene: sources.Source,
    choices: dict[str, Choice],
    look: Look,
    message: str,
) -> None:
    before = len(studio.manifest.rows())
    with pytest.raises(ConfigError, match=message):
        callbacks.submit(studio, scene.id, choices, look)
    assert len(studio.manifest.rows()) == before


# --------------------------------------------------------------------------------- what it comes to


def test_a_job_is_made_and_its_spec_makes_the_same_bytes(
    studio: Studio, scene: sources.Source, tmp_path: Path
) -> None:
    from cosmos_transfer.cli.main import main

    choices = {"edge": Choice(weight=0.5, end=0.5), "depth": Choice(weight=0.5)}
    (name,) = callbacks.submit(studio, scene.id, choices, LOOK)
    job = callbacks.find_job(studio, name)
    assert job is not None
    assert job.state == "waiting"
    make = worker.build_maker(studio.root, studio.model)
    work(studio.manifest, studio.results, make, keep_going=True)
    done = callbacks.find_job(studio, name)
    assert done is not None
    assert (done.state, done.error) == ("done", None)
    assert {"edge_f1", "seconds"} <= set(done.metrics)
    files = callbacks.result_files(studio, name)
    assert set(files) == {"clip", "record", "spec", "input"}
    assert yaml.safe_load(files["spec"].read_text())["controls"]["edge"]["ramp"] == [1.0, 0.5]
    arguments = [f"spec={files['spec']}", f"output.dir={tmp_path}"]
    arguments.append(f"model.checkpoint={studio.checkpoint}")
    assert main(["generate", *arguments]) == 0
    assert (tmp_path / files["clip"].name).read_bytes() == files["clip"].read_bytes()
    page = pages.result(done, files, None)
    assert page.count("<video") == 2
    assert "Edge F1" in page


def test_jobs_that_wait_and_jobs_that_run_are_cancelled(
    studio: Studio, scene: sources.Source
) -> None:
    names = callbacks.submit(studio, scene.id, EDGE, Look(prompt="x", variants=2))
    row = studio.manifest.claim()
    assert row is not None
    watch = worker.Watch(worker.item_folder(studio.root, row.id), total=4)
    watch(None)
    running = callbacks.find_job(studio, row.name)
    assert running is not None
    assert (running.state, running.stage, running.share) == ("running", "denoising", 0.25)
    assert running.left_s is not None
    for name in names:
        callbacks.cancel(studio, name)
    with pytest.raises(worker.CancelledError):
        watch(None)
    studio.manifest.finish(row, "failed", error=worker.CANCELLED)
    for name in names:
        found = callbacks.find_job(studio, name)
        assert found is not None
        assert found.state == "cancelled"
    with pytest.raises(ConfigError, match="that waits or runs"):
        callbacks.cancel(studio, names[0])
    assert studio.manifest.claim() is None


def test_texts_of_users_are_escaped(studio: Studio, scene: sources.Source) -> None:
    (name,) = callbacks.submit(studio, scene.id, EDGE, Look(prompt="<img src=x onerror=alert(1)>"))
    listing = pages.job_list(callbacks.jobs(studio), name)
    callbacks.cancel(studio, name)
    assert "<img" not in listing
    assert "&lt;img" in listing
    assert "<b>" not in pages.notice("<b>")


def test_shown_clips_are_small() -> None:
    source = sources.Source(
        id="a",
        title="",
        fields={"video": "x", "controls": {}},
        num_frames=1,
        height=1080,
        width=1920,
        rate=30.0,
        classes=(),
    )
    assert callbacks.shown_size(source) == Size(270, 480)


def test_progress_is_said_in_json(tmp_path: Path) -> None:
    watch = worker.Watch(tmp_path, total=2)
    said = json.loads((tmp_path / "progress.json").read_text())
    assert said == {"stage": "starting", "share": 0.0, "left_s": None}
    watch.say("measuring", 1.0)
    assert json.loads((tmp_path / "progress.json").read_text())["stage"] == "measuring"
