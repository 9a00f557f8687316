"""``cosmos-transfer stream``: frames in from a pipe or a folder, restyled ones out as they come."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import ConfigError, MediaError, explain

if TYPE_CHECKING:
    import numpy as np

    from cosmos_transfer.live import LiveReport

FORMATS = ("rgb24", "y4m", "folder", "clip")
POLL_S = 0.02


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "stream",
        "Restyle frames as they come and hand them on with bounded latency. The report (frames a "
        "second, latency, dropped frames) goes to stderr.",
    )
    parser.add_argument("--prompt", required=True, metavar="TEXT", help="how it is to look")
    parser.add_argument(
        "--input", default="-", metavar="PATH", help="-, the default: stdin; a pipe, file or folder"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="rgb24",
        help="rgb24: raw frames, needs --size; y4m; folder: numbered pictures that are being "
        "written; clip: a video file (default: rgb24)",
    )
    parser.add_argument("--size", metavar="WxH", help="width and height of raw frames")
    parser.add_argument(
        "--output",
        default="-",
        metavar="PATH",
        help="-, the default: stdout; a pipe or file; a name ending in / is a folder of pictures",
    )
    parser.add_argument(
        "--output-format", choices=("rgb24", "y4m"), default="rgb24", help="default: rgb24"
    )
    parser.add_argument(
        "--rate", default="24", metavar="FPS", help="what y4m says its rate is (default: 24)"
    )
    parser.add_argument(
        "--pace",
        metavar="FPS",
        help="take frames from a file no faster than this, as from a camera",
    )
    parser.add_argument(
        "--control",
        action="append",
        metavar="NAME=W",
        help="edge or vis, found in every frame, and its weight; may be repeated (default: edge=1)",
    )
    parser.add_argument("--checkpoint", default="embedded", metavar="NAME", help="name or folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--steps", type=int, metavar="N", help="sampling steps; unset: the checkpoint's own"
    )
    parser.add_argument(
        "--guidance-scale",
        type=float,
        default=1.0,
        metavar="G",
        help="1, the default, spares the second pass",
    )
    parser.add_argument(
        "--chunk-frames",
        type=int,
        metavar="N",
        help="frames made at once, the inherited one included; unset: the shortest chunk",
    )
    parser.add_argument(
        "--queue", type=int, default=16, metavar="N", help="frames that may wait (default: 16)"
    )
    parser.add_argument(
        "--drop",
        choices=("oldest", "newest", "wait"),
        default="oldest",
        help="when more come: drop the one that has waited longest, drop the new one, or let the "
        "source wait (default: oldest)",
    )
    parser.add_argument(
        "--idle",
        type=float,
        default=5.0,
        metavar="S",
        help="a folder without a new picture for so many seconds has ended (default: 5)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--report", metavar="FILE", help="write the report there too, as JSON")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    controls = _controls(arguments.control or ["edge=1"])
    _check(arguments)
    from cosmos_transfer.live import LiveSession
    from cosmos_transfer.pipeline import TransferPipeline

    pipeline = TransferPipeline.from_pretrained(
        arguments.checkpoint, device=arguments.device, show_progress=False
    )
    session = LiveSession(
        pipeline,
        prompt=arguments.prompt,
        controls=controls,
        num_inference_steps=arguments.steps,
        guidance_scale=arguments.guidance_scale,
        chunk_frames=arguments.chunk_frames,
        seed=arguments.seed,
    )
    with ExitStack() as stack:
        source = stack.enter_context(_source(arguments))
        sink = stack.enter_context(_sink(arguments))
        report = session.run(source, sink, queue_frames=arguments.queue, drop=arguments.drop)
    print(report_line(report), file=sys.stderr)
    if arguments.report is not None:
        Path(arguments.report).write_text(json.dumps(asdict(report), indent=1) + "\n", "utf-8")
    return 0


def report_line(report: LiveReport) -> str:
    """The report in one line."""
    latency = ", ".join(f"{name} {value:.3f} s" for name, value in report.latency_s.items())
    return (
        f"{report.num_out} of {report.num_in} frames in {report.seconds:.1f} s: "
        f"{report.frames_per_s:.2f} a second; latency {latency or 'unknown'}; "
        f"{report.num_dropped} dropped (policy: {report.drop})"
    )


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot be read or written, before a model is loaded."""
    for name in ("rate", "pace"):
        if (value := getattr(arguments, name)) is not None:
            _fraction(value, f"--{name}")
    if arguments.format == "rgb24":
        _size(arguments.size)
    if arguments.input == "-" and arguments.format in ("folder", "clip"):
        raise ConfigError(
            explain(
                "--input",
                expected=f"a path for the format {arguments.format}",
                got="stdin",
                do="Name it, or choose --format rgb24 or y4m.",
            )
        )
    if arguments.input != "-" and not Path(arguments.input).exists():
        raise MediaError(
            explain("--input", expected="a path", got=arguments.input, do="Check the spelling.")
        )


def _controls(asked: Sequence[str]) -> dict[str, float]:
    found = {}
    for each in asked:
        name, _, weight = each.partition("=")
        try:
            found[{"blur": "vis"}.get(name, name)] = float(weight or 1.0)
        except ValueError:
            found[""] = 0.0
    if not set(found) <= {"edge", "vis"}:
        raise ConfigError(
            explain(
                "--control",
                expected="edge or vis with a weight, such as edge=0.7",
                got=" ".join(asked),
                do="Others need a clip of their own: use LiveSession in Python.",
            )
        )
    return found


def _fraction(text: str, where: str) -> Fraction:
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if value <= 0:
        raise ConfigError(
            explain(where, expected="frames a second", got=text, do="Write 24 or 30000/1001.")
        )
    return value


def _size(text: str | None) -> tuple[int, int]:
    """Height and width."""
    width, _, height = (text or "").partition("x")
    if width.isdecimal() and height.isdecimal() and int(width) and int(height):
        return int(height), int(width)
    raise ConfigError(
        explain(
            "--size",
            expected="width and height of the raw frames",
            got=str(text or "nothing"),
            do="Write --size 640x360.",
        )
    )


# ---------------------------------------------------------------------------- in


@contextmanager
def _source(arguments: argparse.Namespace) -> Iterator[Iterator[np.ndarray]]:
    with ExitStack() as stack:
        frames: Iterator[np.ndarray]
        if arguments.format == "folder":
            frames = follow_folder(Path(arguments.input), idle_s=arguments.idle)
        elif arguments.format == "clip":
            frames = _clip_frames(Path(arguments.input))
        else:
            file: BinaryIO = sys.stdin.buffer
            if arguments.input != "-":
                file = stack.enter_context(Path(arguments.input).open("rb"))
            is_raw = arguments.format == "rgb24"
            frames = raw_frames(file, *_size(arguments.size)) if is_raw else y4m_frames(file)
        if arguments.pace is not None:
            frames = paced(frames, _fraction(arguments.pace, "--pace"))
        yield frames


def raw_frames(file: BinaryIO, height: int, width: int) -> Iterator[np.ndarray]:
    """Frames of raw 8-bit RGB, until the file ends.

    Raises:
        MediaError: It ends within a frame.
    """
    import numpy as np

    size = height * width * 3
    while data := file.read(size):
        if len(data) < size:
            raise MediaError(
                explain(
                    "stream",
                    expected=f"whole frames of {size} bytes",
                    got=f"{len(data)} bytes at the end",
                    do="Check --size.",
                )
            )
        yield np.frombuffer(data, np.uint8).reshape(height, width, 3)


def y4m_frames(file: BinaryIO) -> Iterator[np.ndarray]:
    """Frames of a YUV4MPEG2 stream as RGB.

    Raises:
        MediaError: It is not one, or is damaged.
    """
    import av

    try:
        with av.open(file, "r", format="yuv4mpegpipe") as container:
            for frame in container.decode(video=0):
                yield frame.to_ndarray(format="rgb24")
    except av.error.FFmpegError as error:
        raise MediaError(
            explain(
                "stream",
                expected="YUV4MPEG2",
                got=" ".join(str(error).split()),
                do="Check --format.",
            )
        ) from error


def follow_folder(folder: Path, *, idle_s: float) -> Iterator[np.ndarray]:
    """Pictures of a folder in the order of their names, also those still to come.

    A picture counts as written when it decodes, or when another one follows it.

    Raises:
        MediaError: A picture that another one follows does not decode.
    """
    from cosmos_transfer.inputs.media import IMAGE_SUFFIXES, read_picture

    last, since = "", time.monotonic()
    while time.monotonic() - since < idle_s:
        names = sorted(
            each.name
            for each in folder.iterdir()
            if each.suffix.lower() in IMAGE_SUFFIXES and each.name > last
        )
        for place, name in enumerate(names):
            try:
                frame = read_picture(folder / name, mode="RGB")
            except MediaError:
                if place + 1 < len(names):
                    raise
                break  # still being written
            last, since = name, time.monotonic()
            yield frame
        time.sleep(POLL_S)


def _clip_frames(path: Path) -> Iterator[np.ndarray]:
    from cosmos_transfer.inputs.video import stream_frames

    for block in stream_frames(path, block_frames=1):
        yield from block


def paced(frames: Iterator[np.ndarray], rate: Fraction) -> Iterator[np.ndarray]:
    """The frames, no faster than ``rate``."""
    started = time.monotonic()
    for index, frame in enumerate(frames):
        if (early := started + float(index / rate) - time.monotonic()) > 0:
            time.sleep(early)
        yield frame


# ---------------------------------------------------------------------------- out


@contextmanager
def _sink(arguments: argparse.Namespace) -> Iterator[Callable[[np.ndarray], None]]:
    if arguments.output.endswith("/"):
        yield picture_writer(Path(arguments.output))
        return
    with ExitStack() as stack:
        file: BinaryIO = sys.stdout.buffer
        if arguments.output != "-":
            file = stack.enter_context(Path(arguments.output).open("wb"))
        write = raw_writer(file)
        if arguments.output_format == "y4m":
            write = y4m_writer(file, _fraction(arguments.rate, "--rate"))
        yield write


def picture_writer(folder: Path) -> Callable[[np.ndarray], None]:
    """Writes frames as numbered pictures."""
    from cosmos_transfer.outputs.preview import write_preview

    count = itertools.count()

    def write(frame: np.ndarray) -> None:
        write_preview(folder, frame[None], start=next(count))

    return write


def raw_writer(file: BinaryIO) -> Callable[[np.ndarray], None]:
    """Writes frames as raw 8-bit RGB."""

    def write(frame: np.ndarray) -> None:
        file.write(frame.tobytes())
        file.flush()

    return write


def y4m_writer(file: BinaryIO, rate: Fraction) -> Callable[[np.ndarray], None]:
    """Writes frames as YUV4MPEG2 in 4:4:4."""
    import av

    is_first = True

    def write(frame: np.ndarray) -> None:
        nonlocal is_first
        if is_first:
            height, width = frame.shape[:2]
            header = f"YUV4MPEG2 W{width} H{height} F{rate.numerator}:{rate.denominator} Ip C444\n"
            file.write(header.encode())
            is_first = False
        planes = av.VideoFrame.from_ndarray(frame, format="rgb24").reformat(format="yuv444p")
        file.write(b"FRAME\n" + planes.to_ndarray().tobytes())
        file.flush()

    return write
