"""``cosmos-transfer embed``: encode prompts once, for machines without the text encoder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cosmos_transfer.cli.parser import make_parser
from cosmos_transfer.errors import ConfigError, explain


def build_parser() -> argparse.ArgumentParser:
    """The command's own arguments."""
    parser = make_parser(
        "embed",
        "Encode prompts and keep the result in a folder, 1 MB a prompt. Copy the folder to another "
        "machine and generate there with model.prompt_cache=FOLDER: no text encoder is loaded. The "
        "empty prompt, which guidance needs, is always encoded too.",
    )
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="a prompt, in quotes")
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="a text file with one prompt a line"
    )
    parser.add_argument(
        "--cache", type=Path, required=True, metavar="FOLDER", help="where encoded prompts are kept"
    )
    parser.add_argument(
        "--checkpoint",
        default="embedded",
        metavar="NAME",
        help="whose text encoder: 'embedded', a folder or a hub id (default: embedded)",
    )
    parser.add_argument(
        "--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the number is the exit code."""
    arguments = build_parser().parse_args(argv)
    prompts = list(arguments.prompts)
    if arguments.file is not None:
        prompts += _lines(arguments.file)
    if not prompts:
        raise ConfigError(
            explain(
                "cosmos-transfer embed",
                expected="a prompt, or --file with one a line",
                got="none",
                do='Write cosmos-transfer embed "a snowy street" --cache FOLDER.',
            )
        )
    import torch

    from cosmos_transfer.model.checkpoint import load_checkpoint
    from cosmos_transfer.model.prompt_cache import CachedTextEncoder, encoder_identity

    device = arguments.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    checkpoint = load_checkpoint(arguments.checkpoint, device=device, controls=())
    transformer = checkpoint.model.transformer
    cache = CachedTextEncoder(
        arguments.cache,
        encoder_identity(transformer, checkpoint.info.id),
        encoder=checkpoint.text_encoder,
        projection=getattr(transformer, "crossattn_proj", None),
    )
    for prompt in dict.fromkeys(("", *prompts)):
        known = cache.path_of(prompt).is_file()
        cache.encode([prompt])
        if unknown := cache.unknown_words(prompt):
            print(f"left out of {prompt!r}: {', '.join(unknown)}", file=sys.stderr)
        print(f"{cache.path_of(prompt)}  {'known' if known else 'encoded'}  {prompt!r}")
    return 0


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            explain(
                "--file",
                expected="a text file in UTF-8",
                got=f"{path} ({' '.join(str(error).split())})",
                do="Check the path.",
            )
        ) from error
    return [line.strip() for line in text.splitlines() if line.strip()]
