"""A LeRobot dataset in, a larger one out: other looks, the same actions, labels and times."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

import cosmos_transfer
from cosmos_transfer.controls.edge import EDGE_PRESETS
from cosmos_transfer.controls.registry import prepare_control
from cosmos_transfer.datasets.lerobot import LeRobotDataset, NewEpisode, write_lerobot
from cosmos_transfer.errors import ConfigError, TransferError, explain
from cosmos_transfer.inputs.request import request_from_mapping
from cosmos_transfer.inputs.video import VideoClip, clip_from_array, file_sha256, read_clip
from cosmos_transfer.jobs.accept import Threshold, read_thresholds
from cosmos_transfer.jobs.attempts import until_accepted
from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Item, Manifest, Row, content_hash
from cosmos_transfer.jobs.run import Make, run_job
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


def augment_episode(
    frames: UInt8[np.ndarray, "f h w 3"],
    controls: Mapping[str, Any],
    *,
    prompt: str,
    fps: int,
    restyle: Restyle,
    seed: int = 0,
    episode: int = 0,
    variant: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> GeneratedClip:
    """One episode's frames of one camera in another look; the same size and length.

    Raises:
        ConfigError: A setting that moves pixels or frames: actions would no longer fit them.
    """
    chosen = dict(settings or {})
    refuse_geometry(chosen)
    return restyle(
        prompt=prompt,
        video=frames,
        controls=dict(controls),
        rate=Fraction(fps),
        seed=seed,
        episode=episode,
        variant=variant,
        **chosen,
    )


def augment_dataset(
    source: str | Path,
    destination: str | Path,
    *,
    looks: Sequence[str],
    variants: int = 1,
    controls: Mapping[str, Any] | None = None,
    accept: Mapping[str, str] | Sequence[str] | None = None,
    attempts: int = 3,
    cameras: Sequence[str] | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    checkpoint: str = "embedded",
    restyle: Restyle | None = None,
    on_item: Callable[[Row, str], None] | None = None,
) -> Augmented:
    """Make every look of every episode and write them as a new dataset.

    The job is kept in ``<destination>.job``; stopped, the same call goes on where it was.

    Args:
        source: A LeRobot v3.0 dataset.
        destination: A folder that does not exist, other than the source.
        looks: Prompts.
        variants: Clips of each look, differing in their noise.
        controls: Per control its weight or settings; edges at 1 unless given.
        accept: What every clip must meet, such as ``{"edge_f1": ">0.5"}``; see ``attempts``.
        attempts: Seeds to try before an episode is refused.
        cameras: Which to change; all that show colours unless given.
        seed: Noise follows from (seed, episode, variant).
        settings: Of :data:`SETTINGS`.
        checkpoint: What runs, where no ``restyle`` is given.
        restyle: A pipeline that is loaded already.
        on_item: Told each new episode and how it came out.

    Raises:
        TransferError: Something cannot be honoured, or an episode failed.
    """
    chosen = dict(settings or {})
    refuse_geometry(chosen)
    thresholds = read_thresholds(accept)
    steered = dict(controls or {"edge": 1.0})
    _refuse_unmeasurable(thresholds, steered)
    dataset, destination = LeRobotDataset(source), Path(destination)
    _refuse_destination(dataset.root, destination)
    if not looks or variants < 1:
        raise ConfigError(
            explain(
                "looks",
                expected="one prompt or more, and one variant or more",
                got=f"{len(looks)} and {variants}",
                do="Name a look.",
            )
        )
    changed = tuple(cameras or dataset.cameras)
    plan = [
        _item(dataset, episode, look, number, changed, steered, thresholds, attempts, chosen, seed)
        for episode in range(len(dataset.episodes))
        for number, look in enumerate(look for look in looks for _ in range(variants))
    ]
    identity = {"checkpoint": checkpoint, "source": _source_hashes(dataset, changed)}
    items = [
        Item(
            name=each.name,
            payload=each.payload,
            seed=seed,
            hash=content_hash({**identity, "payload": each.payload}),
        )
        for each in plan
    ]
    folder = destination.with_name(f"{destination.name}.job")
    manifest = Manifest(folder / MANIFEST_NAME, create=True)
    manifest.add(items)

    def build() -> Make:
        model = restyle or TransferPipeline.from_pretrained(checkpoint, show_progress=False)
        return _maker(dataset, model, thresholds)

    run_job(manifest, folder, build, keep_going=True, on_item=on_item)
    rows = {row.name: row for row in manifest.rows()}
    ours = [rows[each.name] for each in items]
    failed = [row for row in ours if row.state not in ("done", "refused")]
    if failed:
        raise TransferError(f"{len(failed)} episodes failed; {failed[0].name}: {failed[0].error}")
    done = [row for row in ours if row.state == "done"]
    refused = tuple(row for row in ours if row.state == "refused")
    if not done:
        raise TransferError(f"all {len(ours)} episodes were refused; {ours[0].error}")
    write_lerobot(
        dataset,
        destination,
        [_new_episode(dataset, folder, row) for row in done],
        read=lambda path: read_clip(path).frames,
        card=_card(dataset, done, refused, thresholds, checkpoint),
    )
    return Augmented(root=destination, num_episodes=len(done), refused=refused)


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


def _maker(dataset: LeRobotDataset, restyle: Restyle, thresholds: Sequence[Threshold]) -> Make:
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
                    fps=dataset.fps,
                    restyle=restyle,
                    seed=seed,
                    episode=episode.index,
                    variant=asked["variant"],
                    settings=asked["settings"],
                )
                clip.save(folder / row.name / f"{camera}.mp4", overwrite=True)
                if thresholds:
                    values, missing = _measure(clip, frames, dataset.fps, asked["controls"])
                    why |= missing
                    for name, value in values.items():
                        better = min if name != "seam_ratio" else max
                        worst[name] = better(worst.get(name, value), value)
            return worst, why

        return until_accepted(attempt, row.seed, thresholds, asked["attempts"])

    return make


def _measure(
    clip: GeneratedClip, frames: np.ndarray, fps: int, controls: Mapping[str, Any]
) -> tuple[Mapping[str, float], Mapping[str, str]]:
    """The metrics of one camera, at the size of the dataset."""
    edge, preset = None, "medium"
    if "edge" in controls:
        # Only its name and preset say what an edge picture is.
        values = {"prompt": "-", "video": frames, "controls": {"edge": controls["edge"]}}
        (request,) = request_from_mapping(values).controls
        preset = request.preset
        source = clip_from_array(frames, rate=fps)
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
    dataset: LeRobotDataset,
    episode: int,
    look: str,
    number: int,
    cameras: Sequence[str],
    controls: Mapping[str, Any],
    thresholds: Sequence[Threshold],
    attempts: int,
    settings: Mapping[str, Any],
    seed: int,
) -> Item:
    index = dataset.episodes[episode].index
    payload = {
        "episode": episode,
        "prompt": look,
        "variant": number,
        "cameras": list(cameras),
        "controls": dict(controls),
        "accept": [str(each) for each in thresholds],
        "attempts": attempts,
        "settings": dict(settings),
    }
    return Item(name=f"episode-{index:06d}-v{number}", payload=payload, seed=seed)


def _new_episode(dataset: LeRobotDataset, folder: Path, row: Row) -> NewEpisode:
    episode = dataset.episodes[row.payload["episode"]]
    return NewEpisode(
        source=episode,
        videos={camera: folder / row.name / f"{camera}.mp4" for camera in row.payload["cameras"]},
        provenance={
            "synthetic": True,
            "source_episode_index": episode.index,
            "source_repo_id": str(dataset.info.get("repo_id", dataset.root.name)),
            "transform": "cosmos-transfer",
            "transform_version": cosmos_transfer.__version__,
            "variant": row.payload["variant"],
            "prompt": row.payload["prompt"],
            "seed": row.metrics["seed"],
        },
    )


def _source_hashes(dataset: LeRobotDataset, cameras: Sequence[str]) -> dict[str, str]:
    """Per file of the chosen cameras its hash: changed pictures make a changed job."""
    paths = {
        dataset.video_path(episode, camera) for episode in dataset.episodes for camera in cameras
    }
    return {str(path.relative_to(dataset.root)): file_sha256(path) for path in sorted(paths)}


def _card(
    dataset: LeRobotDataset,
    done: Sequence[Row],
    refused: Sequence[Row],
    thresholds: Sequence[Threshold],
    checkpoint: str,
) -> str:
    """The dataset's README: where it comes from, what was accepted, what was refused."""
    rules = ", ".join(map(str, thresholds)) or "none"
    lines = [
        "---",
        "tags: [LeRobot, synthetic]",
        "---",
        f"# {dataset.root.name}, augmented",
        "",
        f"{len(done)} episodes of {dataset.root.name} in other looks, by cosmos-transfer "
        f"{cosmos_transfer.__version__} (checkpoint `{checkpoint}`). Everything but the pictures "
        "is the source's own; `meta/provenance.json` says which episode is which.",
        "",
        f"Thresholds: {rules}. Accepted {len(done)}, refused {len(refused)}.",
        "",
        "| source episode | look | attempt | metrics | outcome |",
        "|---|---|---|---|---|",
    ]
    for row in sorted([*done, *refused], key=lambda row: row.id):
        values = [f"{name} {row.metrics[name]:.3f}" for name in MEASURABLE if name in row.metrics]
        prompt = " ".join(row.payload["prompt"].replace("|", "/").split())
        lines.append(
            f"| {dataset.episodes[row.payload['episode']].index} | {prompt} "
            f"| {row.metrics['attempt']} | {', '.join(values) or 'not asked for'} | {row.state} |"
        )
    return "\n".join(lines) + "\n"


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
