"""A dataset of episodes in, a larger one out: other looks, the same actions, labels and times."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

import cosmos_transfer
from cosmos_transfer.config import RaySettings
from cosmos_transfer.controls.edge import EDGE_PRESETS
from cosmos_transfer.controls.registry import prepare_control
from cosmos_transfer.datasets.base import EpisodeSource, NewEpisode, new_clip_path, refuse_camera
from cosmos_transfer.datasets.source import open_source
from cosmos_transfer.errors import ConfigError, TransferError, explain
from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.inputs.video import VideoClip, clip_from_array, file_sha256
from cosmos_transfer.jobs.accept import Threshold, read_thresholds
from cosmos_transfer.jobs.attempts import until_accepted
from cosmos_transfer.jobs.card import dataset_card
from cosmos_transfer.jobs.looks import read_look
from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Item, Manifest, Row, content_hash
from cosmos_transfer.jobs.run import Make, OnItem, run_job
from cosmos_transfer.metrics.evaluate import GivenControls, evaluate_clip
from cosmos_transfer.pipeline import GeneratedClip, TransferPipeline
from cosmos_transfer.shapes import Size

SETTINGS = (
    "negative_prompt",
    "num_inference_steps",
    "guidance_scale",
    "strength",
    "step_cache",
    "resolution",
    "weight_rule",
)
MEASURABLE = ("edge_f1", "edge_f1_1px", "blur_ssim", "seam_ratio")


@runtime_checkable
class Restyle(Protocol):
    """What makes a clip: a :class:`~cosmos_transfer.pipeline.TransferPipeline`."""

    def __call__(
        self, *, prompt: str, video: np.ndarray, controls: Any, **settings: Any
    ) -> GeneratedClip:
        """Make one clip."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmented:
    """What a run came to: where the dataset is, and the episodes that were refused."""

    root: Path
    num_episodes: int
    refused: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What every item of a job shares; plain values, so that it reaches other processes."""

    source: str
    flip_vertical: bool
    rate: Fraction | None
    checkpoint: str
    accept: tuple[str, ...]

    def open(self) -> EpisodeSource:
        return open_source(self.source, flip_vertical=self.flip_vertical, rate=self.rate)


def augment_episode(
    frames: UInt8[np.ndarray, "f h w 3"],
    controls: Mapping[str, Any],
    *,
    prompt: str,
    fps: Fraction | int | None = None,
    times: Sequence[Fraction] | None = None,
    restyle: Restyle | None = None,
    seed: int = 0,
    episode: int = 0,
    variant: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> GeneratedClip:
    """One episode's frames of one camera in another look; the same size and length.

    Args:
        frames: What the camera saw.
        controls: Per control its weight or settings, such as ``{"edge": 1.0}``.
        prompt: How it is to look.
        fps: Frames per second; 24 where neither it nor ``times`` is given.
        times: When each frame is shown, in seconds from 0.
        restyle: A pipeline; the embedded checkpoint is loaded where none is given, each time.
        seed: Noise follows from (seed, episode, variant).
        episode: See ``seed``.
        variant: See ``seed``.
        settings: Of :data:`SETTINGS`.

    Raises:
        ConfigError: A setting that moves pixels or frames: actions would no longer fit them.
    """
    chosen = dict(settings or {})
    refuse_geometry(chosen)
    clock = {"rate": None if fps is None else Fraction(fps), "times": times}
    model = restyle or TransferPipeline.from_pretrained(show_progress=False)
    return model(
        prompt=prompt,
        video=frames,
        controls=dict(controls),
        seed=seed,
        episode=episode,
        variant=variant,
        **{key: value for key, value in clock.items() if value is not None},
        **chosen,
    )


def augment_dataset(
    source: str | Path,
    destination: str | Path,
    *,
    looks: Sequence[str],
    prompt: str = "",
    variants: int = 1,
    controls: Mapping[str, Any] | None = None,
    accept: Mapping[str, str] | Sequence[str] | None = None,
    attempts: int = 3,
    cameras: Sequence[str] | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    checkpoint: str = "embedded",
    restyle: Restyle | None = None,
    workers: int = 1,
    ray: RaySettings | None = None,
    flip_vertical: bool = False,
    rate: Fraction | int | None = None,
    on_item: OnItem | None = None,
    show_progress: bool = False,
) -> Augmented:
    """Make every look of every episode and write them as a new dataset.

    The job is kept in ``<destination>.job``; stopped, the same call goes on where it was.

    Args:
        source: A LeRobot dataset (v3.0, v2.1), a robomimic or Isaac Lab HDF5 file, or a folder of
            clips; what comes out is of the same kind (LeRobot: v3.0).
        destination: A folder, or for HDF5 a file, that does not exist, other than the source.
        looks: Prompts, or names of presets, such as ``night`` or ``marble+dusk``
            (:mod:`cosmos_transfer.jobs.looks`).
        prompt: What is seen; stands before every look.
        variants: Clips of each look, differing in their noise.
        controls: Per control its weight or settings; edges at 1 unless given.
        accept: What every clip must meet, such as ``{"edge_f1": ">0.5"}``; see ``attempts``.
        attempts: Seeds to try before an episode is refused.
        cameras: Which to change; all that show colours unless given.
        seed: Noise follows from (seed, episode, variant).
        settings: Of :data:`SETTINGS`.
        checkpoint: What runs, where no ``restyle`` is given.
        restyle: A pipeline that is loaded already; for one worker.
        workers: Processes, each with the checkpoint.
        ray: Actors of a Ray cluster instead; the source must be readable to all of them.
        flip_vertical: HDF5: pictures are stored with their rows from the bottom up.
        rate: HDF5: steps per second.
        on_item: Told each new episode and how it came out.
        show_progress: Draw a bar on stderr where that is a terminal.

    Raises:
        TransferError: Something cannot be honoured, or an episode failed.
    """
    chosen = dict(settings or {})
    refuse_geometry(chosen)
    thresholds = read_thresholds(accept)
    steered = dict(controls or {"edge": 1.0})
    _refuse_unmeasurable(thresholds, steered)
    order = _Order(
        source=str(source),
        flip_vertical=flip_vertical,
        rate=None if rate is None else Fraction(rate),
        checkpoint=checkpoint,
        accept=tuple(map(str, thresholds)),
    )
    dataset, destination = order.open(), Path(destination)
    _refuse_destination(dataset.root, destination)
    _refuse_counts(looks, variants, workers, restyle)
    changed = tuple(cameras or dataset.cameras)
    for camera in changed:
        refuse_camera(camera, dataset.cameras)
    asked = {
        "cameras": list(changed),
        "controls": steered,
        "accept": list(order.accept),
        "attempts": attempts,
        "settings": chosen,
    }
    prompts = [read_look(look, prompt) for look in looks for _ in range(variants)]
    identity = {"order": order_identity(order), "source": _source_hashes(dataset, changed)}
    items = [
        _item(dataset.episodes[place].index, place, variant, words, asked, seed, identity)
        for place in range(len(dataset.episodes))
        for variant, words in enumerate(prompts)
    ]
    folder = destination.with_name(f"{destination.name}.job")
    manifest = Manifest(folder / MANIFEST_NAME, create=True)
    manifest.add(items)
    run_job(
        manifest,
        folder,
        build_maker,
        (order, restyle),
        workers=workers,
        ray=ray,
        keep_going=True,
        on_item=on_item,
        show_progress=show_progress,
    )
    rows = {row.name: row for row in manifest.rows()}
    ours = [rows[each.name] for each in items]
    failed = [row for row in ours if row.state not in ("done", "refused")]
    if failed:
        raise TransferError(f"{len(failed)} episodes failed; {failed[0].name}: {failed[0].error}")
    done = [row for row in ours if row.state == "done"]
    refused = tuple(row for row in ours if row.state == "refused")
    if not done:
        raise TransferError(f"all {len(ours)} episodes were refused; {ours[0].error}")
    dataset.write(
        destination,
        [_new_episode(dataset, folder, row) for row in done],
        card=dataset_card(
            dataset, folder, done, refused, thresholds=thresholds, checkpoint=checkpoint
        ),
    )
    return Augmented(root=destination, num_episodes=len(done), refused=refused)


def order_identity(order: _Order) -> dict[str, Any]:
    """What of an order decides how its clips look."""
    return {
        "checkpoint": order.checkpoint,
        "flip_vertical": order.flip_vertical,
        "rate": None if order.rate is None else str(order.rate),
    }


def build_maker(order: _Order, restyle: Restyle | None = None) -> Make:
    """What makes one item; loads the checkpoint once, for all items of this process."""
    dataset = order.open()
    model = restyle or TransferPipeline.from_pretrained(order.checkpoint, show_progress=False)
    return _maker(dataset, model, read_thresholds(order.accept))


def refuse_geometry(settings: Mapping[str, Any]) -> None:
    """Refuse settings that are not about the look: flips, crops and other times move the world."""
    stray = sorted(set(settings) - set(SETTINGS))
    if stray:
        raise ConfigError(
            explain(
                "settings of a dataset with actions",
                expected=f"only {', '.join(SETTINGS)}",
                got=", ".join(stray),
                do="Pixels and frames must stay where they are, or the actions no longer fit.",
            )
        )


def _maker(dataset: EpisodeSource, restyle: Restyle, thresholds: Sequence[Threshold]) -> Make:
    def make(row: Row, folder: Path) -> Mapping[str, Any]:
        asked = row.payload
        episode = dataset.episodes[asked["episode"]]
        sources = {camera: dataset.frames(episode, camera) for camera in asked["cameras"]}

        def attempt(seed: int) -> tuple[Mapping[str, float], Mapping[str, str]]:
            worst: dict[str, float] = {}
            why: dict[str, str] = {}
            for camera, frames in sources.items():
                clip = augment_episode(
                    frames,
                    asked["controls"],
                    prompt=asked["prompt"],
                    times=dataset.clock(episode, camera),
                    restyle=restyle,
                    seed=seed,
                    episode=episode.index,
                    variant=asked["variant"],
                    settings=asked["settings"],
                )
                path = new_clip_path(folder, row.name, camera)
                clip.save(path, codec=dataset.codec, overwrite=True)
                if thresholds:
                    values, missing = _measure(clip, frames, asked["controls"])
                    why |= missing
                    for name, value in values.items():
                        better = min if name != "seam_ratio" else max
                        worst[name] = better(worst.get(name, value), value)
            return worst, why

        return until_accepted(attempt, row.seed, thresholds, asked["attempts"])

    return make


def _measure(
    clip: GeneratedClip, frames: np.ndarray, controls: Mapping[str, Any]
) -> tuple[Mapping[str, float], Mapping[str, str]]:
    """The metrics of one camera, at the size of the dataset."""
    edge, preset = None, "medium"
    if "edge" in controls:
        # Only its name and preset say what an edge picture is.
        values = {"prompt": "-", "video": frames, "controls": {"edge": controls["edge"]}}
        (request,) = request_from_mapping(values).controls
        preset = request.preset
        source = clip_from_array(frames, rate=clip.rate)
        size = Size(frames.shape[1], frames.shape[2])
        edge = prepare_control(request, source, size=size, num_frames=len(frames)).picture
    given = GivenControls(
        edge=edge,
        edge_thresholds=EDGE_PRESETS[preset],
        reference=frames,
        seams=[chunk["start"] + chunk["num_inherited"] for chunk in clip.record.chunks[1:]],
    )
    output = VideoClip(frames=clip.frames, times=clip.times, rate=clip.rate)
    report = evaluate_clip(output, given)
    return report.values, report.left_out


def _item(
    index: int,
    place: int,
    variant: int,
    prompt: str,
    asked: Mapping[str, Any],
    seed: int,
    identity: Mapping[str, Any],
) -> Item:
    """One look of one episode: the place in the source, and its number there."""
    payload = {"episode": place, "prompt": prompt, "variant": variant, **asked}
    return Item(
        name=f"episode-{index:06d}-v{variant}",
        payload=payload,
        seed=seed,
        hash=content_hash({**identity, "payload": payload, "seed": seed}),
    )


def _new_episode(dataset: EpisodeSource, folder: Path, row: Row) -> NewEpisode:
    episode = dataset.episodes[row.payload["episode"]]
    return NewEpisode(
        source=episode,
        videos={
            camera: new_clip_path(folder, row.name, camera) for camera in row.payload["cameras"]
        },
        provenance={
            "synthetic": True,
            "source_episode_index": episode.index,
            "source_repo_id": dataset.repo_id,
            "transform": "cosmos-transfer",
            "transform_version": cosmos_transfer.__version__,
            "variant": row.payload["variant"],
            "prompt": row.payload["prompt"],
            "seed": row.metrics["seed"],
        },
    )


def _source_hashes(dataset: EpisodeSource, cameras: Sequence[str]) -> dict[str, str]:
    """Per file of the chosen cameras its hash: changed pictures make a changed job."""
    return {name: file_sha256(path) for name, path in dataset.files(cameras).items()}


def _refuse_counts(
    looks: Sequence[str], variants: int, workers: int, restyle: Restyle | None
) -> None:
    if not looks or variants < 1 or workers < 1:
        raise ConfigError(
            explain(
                "looks",
                expected="one look or more, one variant or more, one worker or more",
                got=f"{len(looks)}, {variants} and {workers}",
                do="Name a look.",
            )
        )
    if workers > 1 and restyle is not None:
        raise ConfigError(
            explain(
                "workers",
                expected="1 with a pipeline that is loaded already",
                got=str(workers),
                do="Name a checkpoint: every worker loads its own.",
            )
        )


def _refuse_unmeasurable(thresholds: Sequence[Threshold], controls: Mapping[str, Any]) -> None:
    for each in thresholds:
        needs_edge = each.metric.startswith("edge") and "edge" not in controls
        if each.metric not in MEASURABLE or needs_edge:
            raise ConfigError(
                explain(
                    "accept",
                    expected=f"one of {', '.join(MEASURABLE)}; edges only with the control edge",
                    got=str(each),
                    do="The dataset holds nothing to measure that against: drop the rule.",
                )
            )


def _refuse_destination(source: Path, destination: Path) -> None:
    inside = os.path.commonpath([source.absolute(), destination.absolute()])
    if destination.exists() or inside == str(source.absolute()):
        raise ConfigError(
            explain(
                str(destination),
                expected="a folder that does not exist, outside the source",
                got="one that does, or a place in the source",
                do="Choose another destination.",
            )
        )
