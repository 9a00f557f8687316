"""``cosmos-transfer train``: render clips, train the embedded checkpoint's parts, export them."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import ConfigError, explain

if TYPE_CHECKING:
    from cosmos_transfer.training.batches import ClipPool
    from cosmos_transfer.training.networks import EmbeddedNetworks

DEFAULT_DATA = Path("runs/data")
DEFAULT_RUN = Path("runs/joint")
NATIVE_SIZE = (96, 160)
NATIVE_FRAMES = 17


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "train",
        "Train the embedded checkpoint on clips that this package renders: `data` renders them, "
        "`text` trains the encoder of prompts, "
        "`joint` trains base and branches together (how the shipped weights were made), `base` "
        "the base alone, `branch` one branch on a frozen base, `autoencoder` the decoder, "
        "`distill` a student of a few steps; `export` writes a checkpoint folder from a run. Every "
        "run can be stopped and taken up.",
    )
    parser.add_argument(
        "what",
        choices=("data", "text", "autoencoder", "base", "branch", "joint", "distill", "export"),
    )
    parser.add_argument(
        "name", nargs="?", help="with `branch`: the control (edge, depth, seg or vis)"
    )
    parser.add_argument(
        "--data", type=Path, default=DEFAULT_DATA, metavar="FOLDER", help="shards of clips"
    )
    parser.add_argument(
        "--run", type=Path, default=DEFAULT_RUN, metavar="FOLDER", help="state and metrics"
    )
    parser.add_argument(
        "--start-from",
        metavar="NAME|FOLDER",
        help="a checkpoint whose weights a new run starts from, such as embedded",
    )
    parser.add_argument(
        "--words",
        type=Path,
        metavar="FILE",
        help="with `text`: a table of word vectors; that of the embedded checkpoint by default",
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to train")
    parser.add_argument("--scenes", type=int, default=3_000, help="with `data`: how many scenes")
    parser.add_argument(
        "--size",
        type=int,
        nargs=2,
        default=NATIVE_SIZE,
        metavar=("HEIGHT", "WIDTH"),
        help="with `data`: pixels of a clip",
    )
    parser.add_argument(
        "--frames", type=int, default=NATIVE_FRAMES, help="with `data`: frames of a clip"
    )
    parser.add_argument("--first-scene", type=int, default=0, help="with `data`: which comes first")
    parser.add_argument(
        "--batch-size", type=int, default=8, help="latent frames of a step; clips of the decoder's"
    )
    for name, default, what in (
        ("single", 0.2, "on single pictures"),
        ("shorter", 0.2, "on some of a clip's latent frames"),
        ("crop", 0.0, "on a part of the picture"),
    ):
        parser.add_argument(
            f"--share-{name}", type=float, default=default, metavar="SHARE", help=f"steps {what}"
        )
    parser.add_argument("--rate", type=float, default=1.0, help="factor on the learning rates")
    parser.add_argument(
        "--cool-down", type=float, default=0.35, help="last share of the run, rate falling to zero"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of torch")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="with `export`: the checkpoint to write"
    )
    parser.add_argument(
        "--fast",
        action="store_true",
        help="with `export`: the run was distilled",
    )
    parser.add_argument("--overwrite", action="store_true", help="with `export`: replace it")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    _check(arguments)
    logging.getLogger("cosmos_transfer").setLevel(logging.INFO)
    if arguments.what == "data":
        return _render(arguments)
    import torch

    _check_device(arguments.device)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    if arguments.what == "export":
        return _export(arguments)
    if arguments.what == "text":
        return _train_text(arguments)
    if arguments.what == "autoencoder":
        return _train_autoencoder(arguments)
    return _train(arguments)


def _check(arguments: argparse.Namespace) -> None:
    """Refuse numbers out of range, and names that nothing would read."""
    for name, value, least in (
        ("--minutes", arguments.minutes, 0),
        ("--scenes", arguments.scenes, 1),
        ("--first-scene", arguments.first_scene, 0),
        ("--batch-size", arguments.batch_size, 1),
        ("--threads", arguments.threads, 1),
        ("--size", min(arguments.size), 8),
        ("--frames", arguments.frames, 1),
        ("--seed", arguments.seed, 0),
    ):
        if not value >= least:
            raise ConfigError(
                explain(
                    f"train, {name}",
                    expected=f"a number of at least {least}",
                    got=f"{value}",
                    do="Choose one in range.",
                )
            )
    if arguments.name is not None and arguments.what != "branch":
        raise ConfigError(
            explain(
                f"train {arguments.what}",
                expected="no name of a branch",
                got=repr(arguments.name),
                do="Name a branch with `train branch`, and only there.",
            )
        )


def _check_device(name: str) -> None:
    import torch

    try:
        missing = torch.device(name).type == "cuda" and not torch.cuda.is_available()
    except RuntimeError:
        missing = True
    if missing:
        raise ConfigError(
            explain(
                "train, --device",
                expected="cpu, or cuda where there is one",
                got=repr(name),
                do="Leave it out for cpu.",
            )
        )


def _render(arguments: argparse.Namespace) -> int:
    from cosmos_transfer.training.data import render_shards

    shards = render_shards(
        arguments.data,
        num_scenes=arguments.scenes,
        first_scene=arguments.first_scene,
        height=arguments.size[0],
        width=arguments.size[1],
        num_frames=arguments.frames,
    )
    for path in shards:
        print(path, flush=True)
    return 0


def _train(arguments: argparse.Namespace) -> int:
    from cosmos_transfer.training.distill import DistillationConfig, Distiller
    from cosmos_transfer.training.loop import Trainer, TrainingConfig
    from cosmos_transfer.training.networks import load_networks

    is_student = arguments.what == "distill"
    config = TrainingConfig(
        data_dir=arguments.data,
        run_dir=arguments.run,
        mode="joint" if is_student else arguments.what,
        branch=arguments.name,
        duration_s=60.0 * arguments.minutes,
        cool_down=arguments.cool_down,
        rate=arguments.rate,
        batch_size=arguments.batch_size,
        share_single=arguments.share_single,
        share_shorter=arguments.share_shorter,
        share_crop=arguments.share_crop,
        seed=arguments.seed,
        device=arguments.device,
    )
    pool = _pool(arguments.data)
    trainer: Trainer
    if is_student:
        teacher = arguments.start_from or "embedded"
        trainer = Distiller(
            load_networks(teacher), load_networks(teacher), pool, config, DistillationConfig()
        )
    else:
        trainer = Trainer(_networks(arguments, pool), pool, config)
    if trainer.resume():
        print(f"resumed at step {trainer.num_steps}", file=sys.stderr)
    trainer.run()
    print(trainer.state_path)
    return 0


def _train_text(arguments: argparse.Namespace) -> int:
    from cosmos_transfer.training.networks import new_text_encoder
    from cosmos_transfer.training.text import train_text

    encoder = new_text_encoder(arguments.words)
    print(
        train_text(
            encoder,
            run_dir=arguments.run,
            duration_s=60.0 * arguments.minutes,
            seed=arguments.seed,
        )
    )
    return 0


def _train_autoencoder(arguments: argparse.Namespace) -> int:
    from cosmos_transfer.training.autoencoder import train_decoder

    pool = _pool(arguments.data)
    networks = _networks(arguments, pool)
    weights = train_decoder(
        networks,
        pool,
        run_dir=arguments.run,
        duration_s=60.0 * arguments.minutes,
        batch_size=arguments.batch_size,
        rate=arguments.rate,
        seed=arguments.seed,
        device=arguments.device,
    )
    print(weights)
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from cosmos_transfer.training.export import FAST_SETTINGS, SETTINGS, export_run

    if arguments.output is None:
        raise ConfigError(
            explain("train export", expected="--output FOLDER", got="none", do="Name a folder.")
        )
    folder = export_run(
        arguments.run,
        arguments.output,
        settings=FAST_SETTINGS if arguments.fast else SETTINGS,
        overwrite=arguments.overwrite,
    )
    print(folder)
    return 0


def _pool(folder: Path) -> ClipPool:
    from cosmos_transfer.training.batches import ClipPool

    pool = ClipPool(folder)
    pool.refresh()
    if not pool.shards:
        raise ConfigError(
            explain(
                f"train, {folder}",
                expected="shards of rendered clips",
                got="none",
                do="Run cosmos-transfer train data first.",
            )
        )
    return pool


def _networks(arguments: argparse.Namespace, pool: ClipPool) -> EmbeddedNetworks:
    from cosmos_transfer.training.autoencoder import fit_encoder
    from cosmos_transfer.training.networks import (
        STATE_FILE,
        load_networks,
        new_networks,
        packaged_text_encoder,
        run_networks,
    )
    from cosmos_transfer.training.text import TEXT_FILE, load_text

    if (arguments.run / STATE_FILE).is_file():
        # A run is taken up; or its decoder is trained, on samples of the weights that are shipped.
        return run_networks(arguments.run, averaged=arguments.what == "autoencoder")
    if arguments.start_from is not None:
        return load_networks(arguments.start_from)
    if arguments.what == "branch":
        raise ConfigError(
            explain(
                "train branch",
                expected="a trained base to stand on",
                got="none",
                do="Name a checkpoint: --start-from embedded.",
            )
        )
    networks = new_networks()
    text = arguments.run / TEXT_FILE
    if text.is_file():
        load_text(networks.text_encoder, text)
    else:
        networks.text_encoder = packaged_text_encoder()
    fit_encoder(networks.autoencoder, pool)
    return networks
