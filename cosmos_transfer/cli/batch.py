"""``cosmos-transfer batch``: many clips as one job that can be stopped and goes on."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import ConfigError, explain

if TYPE_CHECKING:
    from cosmos_transfer.config import GenerateSettings
    from cosmos_transfer.inputs.request import GenerationRequest
    from cosmos_transfer.jobs.manifest import Item, Row
    from cosmos_transfer.jobs.run import Make


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments; what generate understands goes beside them."""
    parser = make_parser(
        "batch",
        "Make every clip of a spec file, a list of prompts, or several variants, as one job. The "
        "job is a table beside the outputs (job.sqlite): stopped or killed at any moment, the same "
        "command goes on where it was. Exit code 1: some items failed or were refused.",
    )
    parser.add_argument(
        "settings",
        nargs="+",
        metavar="KEY=VALUE",
        help="as for generate: spec=FILE, prompts_file=FILE, variants=N, output.dir=FOLDER, ... "
        "output.dir is needed: it is what a stopped job is found by",
    )
    parser.add_argument(
        "-m",
        "--multirun",
        action="store_true",
        help="a setting may have several values: seed=1,2 look=night,fog 'seed=range(8)'; every "
        "combination is made, as one job, or with hydra/launcher=slurm (or local) as one for each",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default 1)")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failed item")
    parser.add_argument(
        "--accept",
        action="append",
        metavar="RULE",
        help="what a clip must meet, such as 'edge_f1>0.5'; may be given several times",
    )
    parser.add_argument(
        "--attempts",
        type=int,
        default=3,
        metavar="N",
        help="seeds to try before a clip that misses a rule is refused (default 3)",
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    if arguments.workers < 1 or arguments.attempts < 1:
        raise ConfigError(
            explain(
                "batch",
                expected="--workers and --attempts of 1 or more",
                got=f"{arguments.workers} and {arguments.attempts}",
                do="Leave them out for the defaults.",
            )
        )
    from cosmos_transfer.cli.compose import compose, launch, sweep_points
    from cosmos_transfer.config import GenerateSettings
    from cosmos_transfer.jobs.accept import read_thresholds

    launcher = [each for each in arguments.settings if each.startswith(("hydra/", "hydra."))]
    overrides = [each for each in arguments.settings if each not in launcher]
    rules = tuple(arguments.accept or ())
    read_thresholds(rules)
    options = _Options(
        rules=rules,
        attempts=arguments.attempts,
        workers=arguments.workers,
        keep_going=arguments.keep_going,
        overrides=tuple(overrides),
    )
    if launcher and not arguments.multirun:
        raise ConfigError(
            explain(
                "batch",
                expected=f"-m with {launcher[0]}",
                got="none",
                do="Add -m, or leave out what begins with hydra.",
            )
        )
    points = sweep_points(overrides) if arguments.multirun else [overrides]
    composed = [compose("generate", point, GenerateSettings) for point in points]
    folder = _folder(composed)
    if launcher:
        counted = launch(
            "generate",
            overrides,
            launcher,
            partial(run_point, options=options),
            schema=GenerateSettings,
            folder=folder,
        )
    else:
        counted = [_run(composed, points, folder, options)]
    total = Counter[str]()
    for counts in counted:
        total.update(counts)
    print(", ".join(f"{count} {state}" for state, count in total.items() if count))
    return 0 if total["done"] == sum(total.values()) else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What the command was told beside the settings."""

    rules: tuple[str, ...]
    attempts: int
    workers: int
    keep_going: bool
    overrides: tuple[str, ...]


def run_point(settings: GenerateSettings, folder: Path, *, options: _Options) -> dict[str, int]:
    """One point of a sweep as a job of its own in a folder; returns the counts by state."""
    return _run([settings], [list(options.overrides)], folder, options)


def _folder(composed: Sequence[GenerateSettings]) -> Path:
    """Where the job is kept: one place, whatever the sweep."""
    dirs = {settings.output.dir for settings in composed}
    if len(dirs) > 1 or None in dirs:
        raise ConfigError(
            explain(
                "batch",
                expected="output.dir=FOLDER",
                got="no folder" if None in dirs else f"{len(dirs)} of them",
                do="Name one: the job is kept there.",
            )
        )
    return Path(str(dirs.pop())).expanduser().absolute()


def _run(
    composed: Sequence[GenerateSettings],
    points: Sequence[Sequence[str]],
    folder: Path,
    options: _Options,
) -> dict[str, int]:
    """All points as one job; returns the counts by state."""
    from cosmos_transfer.cli.requests import build_requests, output_names
    from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Manifest
    from cosmos_transfer.jobs.run import run_job

    model = _model_values(composed[0])
    if any(_model_values(settings) != model for settings in composed):
        raise ConfigError(
            explain(
                "batch",
                expected="one model for a job",
                got="a sweep over models",
                do="Start one batch for each, or add hydra/launcher=local.",
            )
        )
    requests = [
        request
        for settings, point in zip(composed, points, strict=True)
        for request in build_requests(settings, point)
    ]
    checkpoint = composed[0].model.checkpoint
    items = [
        _item(name, request, checkpoint, options.rules, options.attempts)
        for name, request in zip(output_names(requests), requests, strict=True)
    ]
    manifest = Manifest(folder / MANIFEST_NAME, create=True)
    manifest.add(items)
    progress = run_job(
        manifest,
        folder,
        build_maker,
        (model, options.rules, options.attempts),
        workers=options.workers,
        ray=composed[0].ray,
        keep_going=options.keep_going,
        on_item=_report,
        show_progress=True,
    )
    for row in manifest.rows("failed", "refused"):
        print(f"{row.name}: {row.state}: {row.error}", file=sys.stderr)
    return dict(progress.counts)


def _item(
    name: str,
    request: GenerationRequest,
    checkpoint: str,
    rules: tuple[str, ...],
    attempts: int,
) -> Item:
    """The row of a request; its hash is of what was asked and of what the input files hold."""
    from cosmos_transfer.inputs.request import request_to_mapping
    from cosmos_transfer.inputs.video import file_sha256
    from cosmos_transfer.jobs.manifest import Item, content_hash

    payload = request_to_mapping(request)
    hashes = {str(path): file_sha256(path) for path in _paths(request) if path.exists()}
    whole = {
        "request": payload,
        "inputs": hashes,
        "checkpoint": checkpoint,
        "accept": list(rules),
        "attempts": attempts,
    }
    return Item(name=name, payload=payload, seed=request.seed, hash=content_hash(whole))


def _paths(request: GenerationRequest) -> list[Path]:
    held = [request.video, request.keep]
    for control in request.controls:
        held += [control.path, control.mask, control.labels, control.weight]  # type: ignore[list-item]
    return [each for each in held if isinstance(each, Path)]


def _model_values(settings: GenerateSettings) -> dict[str, Any]:
    model = settings.model
    return {
        "name_or_path": model.checkpoint,
        "device": model.device,
        "dtype": None if model.dtype == "auto" else model.dtype,
        "guardrail": model.guardrail,
        "prompt_cache": model.prompt_cache,
        "show_progress": False,
    }


def build_maker(model: Mapping[str, Any], rules: tuple[str, ...], attempts: int) -> Make:
    """What makes one item: loads the checkpoint once, for all items of this process."""
    from cosmos_transfer.cli.evaluate import evaluate_run
    from cosmos_transfer.cli.recorded import read_run
    from cosmos_transfer.inputs.request import request_from_mapping
    from cosmos_transfer.inputs.validate import check_request
    from cosmos_transfer.jobs.accept import read_thresholds
    from cosmos_transfer.jobs.attempts import until_accepted
    from cosmos_transfer.pipeline import TransferPipeline

    pipeline = TransferPipeline.from_pretrained(**model)
    thresholds = read_thresholds(rules)

    def make(row: Row, folder: Path) -> Mapping[str, Any]:
        request = request_from_mapping(row.payload, where=row.name)

        def attempt(seed: int) -> tuple[Mapping[str, float], Mapping[str, str]]:
            checked = check_request(replace(request, seed=seed), pipeline.checkpoint.info)
            path = pipeline.generate(checked).save(folder / row.name, overwrite=True)
            if not thresholds:
                return {}, {}
            record = path.with_name(f"{path.name if path.is_dir() else path.stem}.json")
            report = evaluate_run(read_run(record))
            return report.values, report.left_out

        return until_accepted(attempt, request.seed, thresholds, attempts)

    return make


def _report(row: Row, outcome: str) -> None:
    print(f"{row.name}: {outcome}", file=sys.stderr, flush=True)
