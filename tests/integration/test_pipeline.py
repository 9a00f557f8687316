"""From a request to frames, with the embedded checkpoint's own networks, small and random.

Random weights make noise, not pictures; what is tested is that every input acts, that what should
not act does not, and that sizes, lengths and times come back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cosmos_transfer.errors import (
    ConfigError,
    EstimatorUnavailableError,
    MediaError,
    NumericsError,
    ShapeError,
)
from cosmos_transfer.inputs.depth import DepthClip
from cosmos_transfer.inputs.request import ControlRequest
from cosmos_transfer.inputs.video import read_clip
from cosmos_transfer.model.checkpoint import CheckpointSettings, save_embedded
from cosmos_transfer.outputs.record import read_record
from cosmos_transfer.outputs.writer import write_clip
from cosmos_transfer.pipeline import GeneratedClip, TransferPipeline
from cosmos_transfer.shapes import Size
from tests.support.embedded import tiny_networks

SETTINGS = CheckpointSettings(
    id="tiny",
    native_size=Size(16, 24),
    native_frames=9,
    timestep_scale=1.0,
    num_inference_steps=2,
    guidance_scale=1.5,
    sampler="euler",
)
# Two classes: 1 on the left half, 2 on the right.
NAMES = {1: "robot", 2: "table"}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> TransferPipeline:
    networks = tiny_networks(seed=5)
    folder = save_embedded(
        tmp_path_factory.mktemp("checkpoint") / "tiny",
        networks.model.transformer,
        dict(networks.model.branches.items()),
        networks.autoencoder,
        networks.text_encoder,
        SETTINGS,
    )
    return TransferPipeline.from_pretrained(folder, device="cpu", show_progress=False)


def clip(num_frames: int = 9, height: int = 16, width: int = 24, *, seed: int = 0) -> np.ndarray:
    """Blocks of random colours: edges to find, and something that moves."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (num_frames, -(-height // 4), -(-width // 4), 3), dtype=np.uint8)
    return coarse.repeat(4, axis=1).repeat(4, axis=2)[:, :height, :width].copy()


def halves(height: int = 16, width: int = 24) -> np.ndarray:
    mask = np.zeros((height, width), dtype=np.float32)
    mask[:, : width // 2] = 1.0
    return mask


def class_ids(num_frames: int = 9, height: int = 16, width: int = 24) -> np.ndarray:
    ids = np.full((num_frames, height, width), 2, dtype=np.int32)
    ids[:, :, : width // 2] = 1
    return ids


def seg(weight: Any = 1.0) -> dict[str, Any]:
    return {"path": class_ids(), "labels": NAMES, "weight": weight}


def metres(num_frames: int = 9) -> np.ndarray:
    ramp = np.linspace(1.0, 9.0, 24, dtype=np.float32)
    return np.broadcast_to(ramp, (num_frames, 16, 24)).copy()


def same(one: GeneratedClip, other: GeneratedClip) -> bool:
    return bool(np.array_equal(one.frames, other.frames))


def moved(one: GeneratedClip, other: GeneratedClip) -> np.ndarray:
    """Mean absolute difference per pixel, f h w."""
    return np.abs(one.frames.astype(float) - other.frames.astype(float)).mean(axis=-1)


Call = Callable[..., GeneratedClip]


@pytest.fixture
def make(pipeline: TransferPipeline) -> Call:
    def call(**changes: Any) -> GeneratedClip:
        given = {"video": clip(), "prompt": "a snowy street at night", "controls": {"edge": 0.7}}
        return pipeline(**(given | changes))

    return call


# ------------------------------------------------------------------------------ what is the same


def test_the_same_request_twice_gives_the_same_bytes(make: Call, tmp_path: Path) -> None:
    one, two = make(), make()
    assert same(one, two)
    files = [made.save(tmp_path / name) for made, name in ((one, "a.mp4"), (two, "b.mp4"))]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_number_a_constant_map_and_a_mask_of_ones_are_one_request(make: Call) -> None:
    def with_edge(**edge: Any) -> GeneratedClip:
        return make(controls={"edge": edge, "vis": 0.8})

    number = with_edge(weight=0.7)
    assert same(number, with_edge(weight=np.full((16, 24), 0.7, dtype=np.float32)))
    assert same(number, with_edge(weight=np.full((9, 16, 24), 0.7, dtype=np.float32)))
    assert same(number, with_edge(weight=0.7, mask=np.ones((9, 32, 48), dtype=np.float32)))
    assert same(number, with_edge(weight=0.7, mask=np.full((16, 24), 255, dtype=np.uint8)))
    assert same(number, with_edge(weight=0.7, ramp=(1.0, 1.0)))
    assert not same(number, with_edge(weight=0.6))


def test_a_class_rule_that_names_every_class_is_a_number(make: Call) -> None:
    rule = {"robot": 0.4, "table": 0.4}
    assert same(make(controls={"seg": seg(rule)}), make(controls={"seg": seg(0.4)}))


def test_zero_weights_are_no_controls(make: Call) -> None:
    without = make(controls={})
    depth = {"path": metres(), "unit": "m", "weight": 0.0}
    zeros = {"edge": 0.0, "vis": 0.0, "seg": seg(0.0), "depth": depth}
    assert same(without, make(controls=zeros))
    assert not same(without, make(controls={"edge": 1.0}))
    nowhere = {"edge": {"weight": 1.0, "mask": np.zeros((16, 24), np.uint8), "allow_empty": True}}
    assert same(without, make(controls=nowhere))


def test_the_order_of_the_controls_does_not_matter(make: Call) -> None:
    controls = {
        "edge": 0.3,
        "depth": {"path": metres(), "unit": "m", "weight": 0.7},
        "seg": seg(0.9),
        "vis": 0.5,
    }
    turned = dict(reversed(controls.items()))
    one, other = make(controls=controls), make(controls=turned)
    assert same(one, other)
    assert list(one.record.weights) == list(other.record.weights) == ["edge", "depth", "seg", "vis"]


def test_controls_may_be_typed_requests(make: Call) -> None:
    typed = (ControlRequest(name="vis", weight=0.5), ControlRequest(name="edge", weight=0.25))
    assert same(make(controls=typed), make(controls={"edge": 0.25, "vis": 0.5}))


def test_arrays_and_files_are_one_request(make: Call, tmp_path: Path) -> None:
    write_clip(tmp_path / "clip.mp4", clip(), rate=Fraction(24), codec="ffv1")
    np.save(tmp_path / "ids.npy", class_ids())
    Image.fromarray((halves() * 255).astype(np.uint8)).save(tmp_path / "mask.png")
    arrays = make(controls={"edge": {"mask": halves()}, "seg": seg(0.5)})
    files = make(
        video=tmp_path / "clip.mp4",
        controls={
            "edge": {"mask": tmp_path / "mask.png"},
            "seg": {"path": str(tmp_path / "ids.npy"), "labels": NAMES, "weight": 0.5},
        },
    )
    assert same(arrays, files)
    assert files.rate == 24


# ------------------------------------------------------------------------------- what acts, where


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"variant": 1},
        {"episode": 1},
        {"prompt": "a foggy street at noon"},
        {"negative_prompt": "fog"},
        {"guidance_scale": 3.0},
        {"num_inference_steps": 3},
        {"controls": {"edge": 0.6}},
        {"controls": {"vis": 0.7}},
        {"controls": {"edge": {"weight": 0.7, "preset": "very_low"}}},
        {"controls": {"edge": 0.7, "depth": {"path": metres(), "unit": "m"}}},
        {"controls": {"edge": 0.7, "seg": seg()}},
        {"controls": {"edge": 0.7, "vis": 0.7}, "weight_rule": "none"},
        {"video": clip(seed=1)},
    ],
    ids=str,
)
def test_every_input_acts(make: Call, change: dict[str, Any]) -> None:
    assert not same(make(), make(**change))


def test_the_rule_acts_only_above_one(make: Call) -> None:
    def weights(rule: str, edge: float, vis: float) -> GeneratedClip:
        return make(controls={"edge": edge, "vis": vis}, weight_rule=rule)

    assert same(weights("cap", 0.4, 0.5), weights("none", 0.4, 0.5))
    assert same(weights("cap", 1.0, 1.0), weights("none", 0.5, 0.5))
    assert not same(weights("cap", 1.0, 1.0), weights("none", 1.0, 1.0))
    assert same(weights("always", 0.25, 0.25), weights("none", 0.5, 0.5))


def test_without_guidance_the_negative_prompt_is_not_read(make: Call) -> None:
    assert same(
        make(guidance_scale=1.0, negative_prompt="fog"),
        make(guidance_scale=1.0, negative_prompt="snow"),
    )
    assert not same(make(negative_prompt="fog"), make(negative_prompt="snow"))


def test_neighbouring_seeds_share_no_noise(
    make: Call, pipeline: TransferPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second chunk of one seed is not the first of the next.
    draw, drawn = pipeline._noise, []

    def watched(checked: Any, chunk: Any, size: Size) -> torch.Tensor:
        drawn.append(draw(checked, chunk, size))
        return drawn[-1]

    monkeypatch.setattr(pipeline, "_noise", watched)
    clips = [make(video=clip(25), controls={}, seed=seed) for seed in (4, 5)]
    assert len(drawn) == 6
    for index, one in enumerate(drawn):
        for other in drawn[:index]:
            correlation = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
            assert abs(float(correlation)) < 0.2  # 288 numbers: a standard deviation of 0.06
    assert moved(*clips).mean() > 1.0


def test_a_mask_acts_on_its_side(make: Call) -> None:
    without = make(controls={})
    left = moved(make(controls={"edge": {"mask": halves()}}), without)
    right = moved(make(controls={"edge": {"mask": halves(), "invert": True}}), without)
    assert left[:, :, :6].mean() > 2 * left[:, :, -6:].mean()
    assert right[:, :, -6:].mean() > 2 * right[:, :, :6].mean()


def test_a_class_rule_is_the_mask_of_its_class(make: Call) -> None:
    def with_edge(**edge: Any) -> GeneratedClip:
        return make(controls={"edge": edge, "seg": seg(0.0)})

    rule = with_edge(weight={"robot": 1.0, "default": 0.0})
    assert same(rule, with_edge(weight=1.0, mask=halves()))
    summary = rule.record.weights["edge"]
    assert (summary["min"], summary["max"]) == (0.0, 1.0)
    assert summary["mean"] == pytest.approx(0.5)


def test_a_segmentation_is_read_once(make: Call, tmp_path: Path, monkeypatch: Any) -> None:
    from cosmos_transfer.controls import seg as seg_control

    calls: list[Path] = []
    read = seg_control.open_segmentation

    def counted(path: Path, *settings: Any, **where: Any) -> Any:
        calls.append(path)
        return read(path, *settings, **where)

    monkeypatch.setattr(seg_control, "open_segmentation", counted)
    np.save(tmp_path / "ids.npy", class_ids())
    given = {"path": tmp_path / "ids.npy", "labels": NAMES, "weight": 0.5}
    make(controls={"seg": given, "edge": {"weight": {"robot": 1.0}}})
    assert len(calls) == 1


def test_the_kept_region_is_the_input_and_the_rest_is_made(make: Call) -> None:
    video = clip(19, 30, 48)  # three chunks, at another size than it is worked on at
    made = make(video=video)
    kept = make(video=video, keep=halves(30, 48))
    assert np.array_equal(kept.frames[:, :, :24], video[:, :, :24])
    assert np.array_equal(kept.frames[:, :, 24:], made.frames[:, :, 24:])
    assert kept.record.metrics["kept_region"] == {"share": 0.5, "psnr_db": None}
    soft = make(video=video, keep=0.75 * np.ones((30, 48), np.float32))
    blend = np.rint(0.75 * video + 0.25 * made.frames.astype(float))
    assert float(np.abs(soft.frames - blend).max()) <= 1.0
    assert soft.record.metrics["kept_region"]["psnr_db"] < 60.0


def test_a_class_may_be_kept(make: Call) -> None:
    controls = {"edge": 0.7, "seg": seg(0.0)}
    video, ids = clip(), class_ids()
    kept = make(controls=controls, keep={NAMES[1]: 1.0})
    assert np.array_equal(kept.frames[ids == 1], video[ids == 1])
    assert not np.array_equal(kept.frames[ids == 2], video[ids == 2])
    with pytest.raises(ConfigError, match="keep"):
        make(keep={NAMES[1]: 1.0})
    with pytest.raises(ConfigError, match="keep"):
        make(keep=np.zeros((16, 24), np.float32))


def test_a_binary_mask_has_no_grey(make: Call) -> None:
    soft = 0.8 * halves() + 0.1
    hard = make(controls={"edge": {"mask": soft, "binary": True}})
    assert same(hard, make(controls={"edge": {"mask": halves()}}))
    assert not same(hard, make(controls={"edge": {"mask": soft}}))


def test_a_control_acts_in_its_share_of_the_steps(make: Call) -> None:
    def with_steps(*steps: float) -> GeneratedClip:
        return make(controls={"edge": {"steps": list(steps)}}, num_inference_steps=4)

    always = make(controls={"edge": 1.0}, num_inference_steps=4)
    never = make(controls={}, num_inference_steps=4)
    assert same(with_steps(0.0, 1.0), always)
    first, last = with_steps(0.0, 0.5), with_steps(0.5, 1.0)
    for one, other in ((first, always), (last, always), (first, never), (last, never)):
        assert not same(one, other)
    # No step lies within a tenth of four: the control never acts.
    assert same(with_steps(0.3, 0.4), never)


def test_controls_of_different_steps_share_a_place_by_who_acts(make: Call) -> None:
    """Alone in its steps, a control is not divided by the sum with one that is not there."""
    both = make(
        controls={"edge": {"steps": [0.0, 0.5]}, "vis": {"steps": [0.0, 0.5]}},
        num_inference_steps=2,
    )
    assert same(
        both,
        make(
            controls={
                "edge": {"steps": [0.0, 0.5], "weight": 0.5},
                "vis": {"steps": [0.0, 0.5], "weight": 0.5},
            },
            num_inference_steps=2,
        ),
    )
    turns = {"edge": {"steps": [0.0, 0.5]}, "vis": {"steps": [0.5, 1.0]}}
    halved = {name: each | {"weight": 0.5} for name, each in turns.items()}
    assert not same(
        make(controls=turns, num_inference_steps=2), make(controls=halved, num_inference_steps=2)
    )


def test_a_weight_fades_over_the_denoising_steps(make: Call) -> None:
    def faded(**edge: object) -> GeneratedClip:
        return make(controls={"edge": edge}, num_inference_steps=2)

    assert same(faded(step_ramp=[1.0, 1.0]), faded())
    assert same(faded(step_ramp=[1.0, 0.0]), faded(steps=[0.0, 0.5]))
    assert same(faded(step_ramp=[0.5, 0.5]), faded(weight=0.5))
    assert not same(faded(step_ramp=[1.0, 0.5]), faded(step_ramp=[0.5, 1.0]))


def test_an_upside_down_video_comes_out_upright(make: Call) -> None:
    ids = np.zeros((9, 16, 24), np.int32)
    ids[:, :5] = 1  # not the same upside down
    given = {"labels": NAMES, "weight": {NAMES[1]: 1.0}}
    upright = make(controls={"edge": 1.0, "seg": given | {"path": ids}}, keep=halves())
    seg_turned = given | {"path": ids[:, ::-1], "flip_vertical": True}
    turned = {"edge": 1.0, "seg": seg_turned}
    assert same(
        make(video=clip()[:, ::-1], flip_vertical=True, controls=turned, keep=halves()), upright
    )
    assert not same(make(controls=turned | {"seg": given | {"path": ids[:, ::-1]}}), upright)


def test_what_a_file_has_to_say_stands_in_the_record_once(make: Call) -> None:
    holes = metres()
    holes[:, 0, 0] = np.inf
    notes = make(controls={"depth": {"clip": holes, "unit": "m"}}).record.notes
    assert sum("no reading" in note for note in notes) == 1
    assert any(note.startswith("control 'depth': ") for note in notes)


def test_a_ramp_acts_on_the_frames_where_it_is_up(make: Call) -> None:
    without = make(controls={})
    rising = moved(make(controls={"edge": {"weight": 1.0, "ramp": (0.0, 1.0)}}), without)
    falling = moved(make(controls={"edge": {"weight": 1.0, "ramp": (1.0, 0.0)}}), without)
    assert rising[5:].mean() > rising[0].mean()
    assert falling[0].mean() > rising[0].mean()
    assert falling[5:].mean() < rising[5:].mean()


def test_a_mask_is_cut_with_the_frames_of_a_long_clip(make: Call) -> None:
    # 17 frames are two chunks. The control acts in frames 9 to 16, which the second chunk makes.
    video = clip(17)
    mask = np.zeros((17, 16, 24), dtype=np.float32)
    mask[9:] = 1.0
    without = make(video=video, controls={})
    late = make(video=video, controls={"edge": {"mask": mask}})
    assert np.array_equal(late.frames[:9], without.frames[:9])
    assert moved(late, without)[9:].mean() > 1.0
    early = make(video=video, controls={"edge": {"mask": mask, "invert": True}})
    whole = make(video=video, controls={"edge": 1.0})
    assert np.array_equal(early.frames[:9], whole.frames[:9])
    assert not np.array_equal(early.frames[9:], whole.frames[9:])


def test_a_control_is_cut_with_the_frames_of_a_long_clip(make: Call) -> None:
    vis = clip(17, seed=3)
    other = vis.copy()
    other[9:] = clip(8, seed=4)
    one, two = (make(video=clip(17), controls={"vis": {"path": each}}) for each in (vis, other))
    assert np.array_equal(one.frames[:9], two.frames[:9])
    assert moved(one, two)[9:].mean() > 1.0


def test_a_chunk_starts_from_the_last_frame_of_the_one_before(
    make: Call, pipeline: TransferPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    autoencoder = pipeline.checkpoint.autoencoder
    encode, encoded = autoencoder.encode, []

    def watched(video: torch.Tensor) -> torch.Tensor:
        encoded.append(video)
        return encode(video)

    monkeypatch.setattr(autoencoder, "encode", watched)
    made = make(video=clip(20), controls={})
    assert len(made.record.chunks) == len(encoded) + 1 == 3
    for video, frame in zip(encoded, (8, 16), strict=True):
        expected = torch.from_numpy(made.frames[frame]).permute(2, 0, 1)[None, :, None] / 127.5 - 1
        assert torch.equal(video, expected)
    # And it acts: other noise in the first chunk alone reaches the second.
    clips = []
    for seed in (0, 1):
        draw = pipeline._noise

        def noise(checked: Any, chunk: Any, size: Size, *, seed: int = seed) -> torch.Tensor:
            other = replace(checked.request, seed=seed if chunk.index == 0 else 7)
            return draw(replace(checked, request=other), chunk, size)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_noise", noise)
            clips.append(make(video=clip(17), controls={}))
    difference = moved(clips[0], clips[1])
    assert difference[:9].mean() > 1.0
    assert difference[9:].max() > 0.0


# --------------------------------------------------------------------------- size, length, times


@pytest.mark.parametrize("num_frames", [1, 5, 9, 10, 23])
@pytest.mark.parametrize("size", [(16, 24), (35, 49), (49, 35), (17, 17)], ids=str)
def test_size_and_length_come_back(make: Call, num_frames: int, size: tuple[int, int]) -> None:
    made = make(video=clip(num_frames, *size), num_inference_steps=1, guidance_scale=1.0)
    assert made.frames.shape == (num_frames, *size, 3)
    assert made.frames.dtype == np.uint8
    assert made.frames.flags.c_contiguous
    assert len(made.times) == num_frames
    assert made.record.num_frames == num_frames
    assert made.record.input_size == Size(*size)
    assert min(made.record.working_size.height, made.record.working_size.width) == 16


def test_a_size_off_the_grid_is_padded_and_cut_back(pipeline: TransferPipeline) -> None:
    # 17x17 is padded to 20x20 by reflection. The same picture, reflected by hand, is the same job.
    frames = clip(5, 17, 17)
    padded = np.pad(frames, ((0, 0), (0, 3), (0, 3), (0, 0)), mode="reflect")
    given = {"prompt": "snow", "resolution": "input"}
    made = pipeline(video=frames, controls={"vis": {"path": frames}}, **given)
    whole = pipeline(video=padded, controls={"vis": {"path": padded}}, **given)
    assert (made.record.working_size, made.record.padded_size) == (Size(17, 17), Size(20, 20))
    assert np.array_equal(made.frames, whole.frames[:, :17, :17])


def test_uneven_times_come_back(make: Call, tmp_path: Path) -> None:
    times = tuple(Fraction(n, 10) for n in (0, 1, 2, 3, 9, 10, 11, 19, 20, 21, 22))
    write_clip(tmp_path / "in.mp4", clip(11, 36, 48), times=times, rate=Fraction(10))
    made = make(video=tmp_path / "in.mp4")
    assert made.times == times
    back = read_clip(made.save(tmp_path / "out.mp4"))
    assert (back.times, back.frames.shape) == (times, (11, 36, 48, 3))


def test_an_ntsc_rate_comes_back(make: Call, tmp_path: Path) -> None:
    rate = Fraction(30000, 1001)
    write_clip(tmp_path / "in.mp4", clip(10, 36, 48), rate=rate)
    made = make(video=tmp_path / "in.mp4")
    assert (made.rate, made.times[9]) == (rate, 9 / rate)
    assert read_clip(made.save(tmp_path / "out.mp4")).rate == rate


def test_a_still_gives_a_still(make: Call, tmp_path: Path) -> None:
    Image.fromarray(clip(1, 35, 49)[0]).save(tmp_path / "in.png")
    from_file = make(video=tmp_path / "in.png")
    from_array = make(video=clip(1, 35, 49)[0])
    assert same(from_file, from_array)
    for made in (from_file, from_array):
        assert made.is_still
        assert made.frames.shape == (1, 35, 49, 3)
    path = from_file.save(tmp_path / "out")
    assert path.name == "out.png"
    assert np.array_equal(np.asarray(Image.open(path)), from_file.frames[0])


def test_a_control_alone_makes_a_clip(pipeline: TransferPipeline) -> None:
    depth = {"depth": {"path": metres(10), "unit": "m"}}
    made = pipeline(prompt="snow", controls=depth, rate=12)
    assert made.frames.shape == (10, 16, 24, 3)
    assert made.rate == 12
    assert made.record.inputs[0]["where"] == "control 'depth'"


def test_lengths_follow_the_policy(make: Call) -> None:
    short = {"vis": {"path": clip(5, seed=3)}}
    with pytest.raises(ShapeError, match=r"9 frames .* got 5"):
        make(controls=short)
    assert len(make(controls=short, length_policy="trim").frames) == 5
    held = {"vis": {"path": np.concatenate([clip(5, seed=3), clip(5, seed=3)[[4] * 4]])}}
    assert same(make(controls=short, length_policy="hold"), make(controls=held))
    looped = {"vis": {"path": np.concatenate([clip(5, seed=3), clip(5, seed=3)[:4]])}}
    assert same(make(controls=short, length_policy="loop"), make(controls=looped))


def test_max_frames_is_the_shorter_clip(make: Call) -> None:
    assert same(make(video=clip(13), max_frames=9), make(video=clip(13)[:9]))


# --------------------------------------------------------------------------------- what goes wrong


def test_latents_that_are_not_finite_are_an_error_and_no_file(
    pipeline: TransferPipeline, tmp_path: Path
) -> None:
    weight = pipeline.checkpoint.model.transformer.write.weight
    kept = weight.clone()
    try:
        with torch.no_grad():
            weight[0, 0, 0, 0] = float("nan")
        with pytest.raises(NumericsError, match="chunk 0, latents"):
            pipeline(video=clip(), prompt="snow", controls={}).save(tmp_path / "out.mp4")
    finally:
        with torch.no_grad():
            weight.copy_(kept)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unless_asked(make: Call, tmp_path: Path) -> None:
    made = make()
    path = made.save(tmp_path / "out.mp4")
    assert {each.name for each in tmp_path.iterdir()} == {"out.mp4", "out.json"}
    with pytest.raises(MediaError, match="there already"):
        made.save(tmp_path / "out.mp4")
    other = make(seed=1)
    before = path.read_bytes()
    assert other.save(tmp_path / "out.mp4", overwrite=True) == path
    assert path.read_bytes() != before
    assert read_record(tmp_path / "out.json").seeds["seed"] == 1


@pytest.mark.parametrize("codec", ["h264", "png"])
def test_a_record_in_the_way_leaves_no_clip_without_one(
    make: Call, tmp_path: Path, codec: str
) -> None:
    (tmp_path / "out.json").write_text("mine")
    with pytest.raises(MediaError, match="there already"):
        make().save(tmp_path / "out", codec=codec)
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]
    assert (tmp_path / "out.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("codec", "name"), [("h264", "v1.5.mp4"), ("ffv1", "v1.5.mp4"), ("png", "v1.5")]
)
def test_the_record_is_named_like_the_clip(
    make: Call, tmp_path: Path, codec: str, name: str
) -> None:
    made = make()
    path = made.save(tmp_path / "v1.5", codec=codec)
    assert path.name == name
    record = read_record(tmp_path / "v1.5.json")
    assert record.outputs == {"clip": name}
    if codec != "h264":
        assert np.array_equal(read_clip(path).frames, made.frames)


@pytest.mark.parametrize("device", ["abacus", "meta", ""])
def test_an_unknown_device_is_refused(tmp_path: Path, device: str) -> None:
    with pytest.raises(ConfigError, match="auto, cpu or cuda"):
        TransferPipeline.from_pretrained(tmp_path, device=device)


def test_an_unknown_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="float32, bfloat16, float16"):
        TransferPipeline.from_pretrained(tmp_path, device="cpu", dtype="int8")


def test_half_precision_makes_nearly_the_same_clip(pipeline: TransferPipeline, make: Call) -> None:
    half = TransferPipeline.from_pretrained(
        pipeline.checkpoint.info.location, device="cpu", dtype="bfloat16", show_progress=False
    )
    made = half(video=clip(), prompt="a snowy street at night", controls={"edge": 0.7})
    assert made.record.dtype == "bfloat16"
    assert moved(made, make()).mean() < 0.1 * moved(make(seed=1), make()).mean()


def test_an_estimator_finds_what_is_not_given(pipeline: TransferPipeline, make: Call) -> None:
    with pytest.raises(EstimatorUnavailableError, match="control 'depth'"):
        make(controls={"depth": 1.0})
    given = make(controls={"depth": {"path": metres(), "unit": "m"}})
    estimating = TransferPipeline(
        pipeline.checkpoint,
        device=pipeline.device,
        show_progress=False,
        estimators={"depth": lambda clip: DepthClip(metres=metres(clip.num_frames))},
    )
    found = estimating(video=clip(), prompt="a snowy street at night", controls={"depth": 1.0})
    assert same(found, given)


def test_a_misspelt_setting_is_refused(make: Call) -> None:
    with pytest.raises(ConfigError, match="guidance_scale"):
        make(guidance_scal=2.0)
    with pytest.raises(ConfigError, match="controls"):
        make(controls="edge")


# ------------------------------------------------------------------------------------- the record


def test_the_record_says_what_was_done(
    make: Call, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_clip(tmp_path / "in.mp4", clip(10, 36, 48), rate=Fraction(10))
    made = make(
        video=tmp_path / "in.mp4",
        prompt="a purple street",
        negative_prompt="pink",
        controls={"vis": 1.0, "edge": {"weight": 1.0, "ramp": (0.0, 1.0)}},
        seed=3,
    )
    path = made.save(tmp_path / "out.mp4")
    record = read_record(path.with_suffix(".json"))
    assert record.request["prompt"] == "a purple street"
    assert (record.request["num_inference_steps"], record.request["guidance_scale"]) == (2, 1.5)
    assert record.checkpoint["id"] == "tiny"
    assert len(record.checkpoint["sha256"]) == 14  # a config and weights of each of seven parts
    (video,) = record.inputs
    assert (video["where"], video["num_frames"], video["size"]) == ("video", 10, [36, 48])
    assert len(video["sha256"]) == 64
    assert (record.input_size, record.working_size) == (Size(36, 48), Size(16, 21))
    assert record.padded_size == Size(16, 24)
    assert (record.num_frames, record.rate) == (10, 10)
    assert record.times == made.times
    assert [(c["start"], c["stop"], c["num_inherited"]) for c in record.chunks] == [
        (0, 9, 0),
        (8, 10, 1),
    ]
    assert record.padded_frames == 3
    assert list(record.weights) == ["edge", "vis"]
    assert record.weights["vis"]["max"] == 1.0  # alone where edge's ramp starts
    assert record.weights["edge"]["min"] == 0.0
    assert 0.45 < record.weights["edge"]["max"] <= 0.5  # shared by two
    assert record.seeds == {"seed": 3, "episode": 0, "variant": 0}
    assert (record.device, record.dtype) == ("cpu", "float32")
    assert {"read", "text", "encode", "denoise", "decode", "resize"} <= set(record.timings_s)
    notes = " / ".join(record.notes)
    assert "words of the prompt the text encoder left out: purple" in notes
    assert caplog.text.count("words of the prompt the text encoder left out: purple") == 1
    assert "words of the negative prompt the text encoder left out: pink" in notes
    assert "add up to 2" in notes
    assert record.outputs == {"clip": "out.mp4"}
    assert json.loads(path.with_suffix(".json").read_text("utf-8"))["format"]
