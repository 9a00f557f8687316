"""``cosmos-transfer batch``: many clips as one job that can be stopped and goes on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    from cosmos_transfer.cli.compose import compose
    from cosmos_transfer.cli.requests import build_requests, output_names
    from cosmos_transfer.config import GenerateSettings
    from cosmos_transfer.jobs.accept import read_thresholds
    from cosmos_transfer.jobs.manifest import MANIFEST_NAME, Manifest
    from cosmos_transfer.jobs.run import run_job

    settings = compose("generate", arguments.settings, GenerateSettings)
    if settings.output.dir is None:
        raise ConfigError(
            explain(
                "batch",
                expected="output.dir=FOLDER",
                got="no folder",
                do="Name one: the job is kept there.",
            )
        )
    rules = tuple(arguments.accept or ())
    read_thresholds(rules)
    folder = Path(settings.output.dir).expanduser().absolute()
    requests = build_requests(settings, arguments.settings)
    checkpoint = settings.model.checkpoint
    items = [
        _item(name, request, checkpoint, rules, arguments.attempts)
        for name, request in zip(output_names(requests), requests, strict=True)
    ]
    manifest = Manifest(folder / MANIFEST_NAME, create=True)
    manifest.add(items)
    progress = run_job(
        manifest,
        folder,
        build_maker,
        (_model_values(settings), rules, arguments.attempts),
        workers=arguments.workers,
        keep_going=arguments.keep_going,
        on_item=_report,
        show_progress=True,
    )
    counts = {state: count for state, count in progress.counts.items() if count}
    print(", ".join(f"{count} {state}" for state, count in counts.items()))
    for row in manifest.rows("failed", "refused"):
        print(f"{row.name}: {row.state}: {row.error}", file=sys.stderr)
    return 0 if progress.counts["done"] == sum(progress.counts.values()) else 1


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
