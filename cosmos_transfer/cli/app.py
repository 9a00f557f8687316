"""``cosmos-transfer app``: the studio, a page in the browser."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import ConfigError, MediaError, explain


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "app",
        "Serve the studio: load a clip or a built-in scene, see its controls, paint or pick where "
        "each acts, run, compare, download the spec that reproduces the result. Listens on this "
        "machine alone unless told; asks nothing of the network.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("outputs/app"),
        metavar="FOLDER",
        help="where clips, results and the queue are kept; the same folder goes on with its queue "
        "(default: outputs/app)",
    )
    parser.add_argument(
        "--checkpoint",
        default="embedded",
        metavar="NAME|FOLDER",
        help="which model runs (default: embedded)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument(
        "--recordings",
        type=Path,
        metavar="FOLDER",
        help="recordings of simulators to choose from, one a subfolder",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument("--port", type=int, default=7860, help="(default: 7860)")
    parser.add_argument(
        "--auth",
        type=Path,
        metavar="FILE",
        help="who may come in: a line NAME:PASSWORD for each person",
    )
    parser.add_argument(
        "--max-upload-mb", type=float, default=200.0, metavar="N", help="(default: 200)"
    )
    parser.add_argument(
        "--max-seconds", type=float, default=60.0, metavar="N", help="of a clip (default: 60)"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    people = () if arguments.auth is None else read_people(arguments.auth)
    if find_spec("gradio") is None:
        raise ConfigError(
            explain(
                "app",
                expected="Gradio",
                got="none installed",
                do="Install it: pip install 'cosmos-transfer[app]'.",
            )
        )
    if arguments.recordings is not None and not arguments.recordings.is_dir():
        raise MediaError(
            explain(
                "--recordings",
                expected="a folder",
                got=str(arguments.recordings),
                do="Check the path.",
            )
        )
    for name in ("GRADIO_ANALYTICS_ENABLED", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[name] = "False" if name.startswith("GRADIO") else "1"
    callbacks = import_module("apps.studio.callbacks")
    sources = import_module("apps.studio.sources")
    ui = import_module("apps.studio.ui")
    studio = callbacks.Studio(
        root=arguments.output.expanduser().absolute(),
        model={"name_or_path": arguments.checkpoint, "device": arguments.device},
        recordings=None if arguments.recordings is None else arguments.recordings.absolute(),
        limits=sources.Limits(
            size_bytes=int(arguments.max_upload_mb * 1_000_000), duration_s=arguments.max_seconds
        ),
    )
    print(f"http://{arguments.host}:{arguments.port}", flush=True)
    ui.launch(studio, host=arguments.host, port=arguments.port, auth=people)
    return 0


def read_people(path: Path) -> tuple[tuple[str, str], ...]:
    """Names and passwords, a line ``NAME:PASSWORD`` each.

    Raises:
        MediaError: The file cannot be read.
        ConfigError: A line without a name or a password, or no line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MediaError(
            explain("--auth", expected="a text file", got=str(path), do="Check the path.")
        ) from error
    people = [line.partition(":") for line in lines if line.strip()]
    if not people or not all(name.strip() and password for name, _, password in people):
        raise ConfigError(
            explain(
                "--auth",
                expected="a line NAME:PASSWORD for each person",
                got=f"{len(people)} lines, not all of that form" if people else "an empty file",
                do="Write one line a person.",
            )
        )
    return tuple((name.strip(), password) for name, _, password in people)
