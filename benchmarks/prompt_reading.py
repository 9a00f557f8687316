"""How many prompts in words that no training saw are read as a reader would.

Usage:
    python -m benchmarks.prompt_reading [--checkpoint embedded] [--misread]

A prompt is read by the tokens it becomes, which are all that the denoiser sees of it: it says what
the prompts of the training grammar say whose mean tokens are nearest. ``prompts_heldout.tsv`` holds
the prompts, with what they say.
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import torch

from cosmos_transfer.inputs.free_text import FreeTextEncoder
from cosmos_transfer.model.checkpoint import load_checkpoint
from cosmos_transfer.training.prompts import ATTRIBUTES, write_prompt

HELD_OUT = Path(__file__).with_name("prompts_heldout.tsv")
NAMES = ("time_of_day", "weather", "table", "wall", "family")
PROMPTS_EACH = 24
NOT_SAID, NOT_SCORED = "-", "?"


def main() -> None:
    """Print the share of right readings of every attribute."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="embedded")
    parser.add_argument("--misread", action="store_true", help="list what was misread")
    arguments = parser.parse_args()
    encoder = load_checkpoint(arguments.checkpoint).text_encoder
    assert isinstance(encoder, FreeTextEncoder)
    rows = held_out_prompts(HELD_OUT)
    readings = read_prompts(encoder, [prompt for _, prompt in rows])
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    whole = 0
    for (said, prompt), found in zip(rows, readings, strict=True):
        wrong = []
        for name, label in said.items():
            asked[name] += 1
            if found.get(name, NOT_SAID) in label.split("|"):
                right[name] += 1
            else:
                wrong.append(f"{name} {found.get(name, NOT_SAID)}, not {label}")
        whole += not wrong
        if wrong and arguments.misread:
            print(f"{prompt!r}: {'; '.join(wrong)}")
    for name in NAMES:
        print(f"{name:12} {right[name]:4} of {asked[name]:4}  {right[name] / asked[name]:.1%}")
    print(f"{'all of it':12} {whole:4} of {len(rows):4}  {whole / len(rows):.1%}")


def held_out_prompts(path: Path) -> list[tuple[dict[str, str], str]]:
    """What every prompt says of the attributes that are scored, and the prompt."""
    rows = []
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            *labels, prompt = line.split("\t")
            said = dict(zip(NAMES, labels, strict=True))
            rows.append(({n: label for n, label in said.items() if label != NOT_SCORED}, prompt))
    return rows


@torch.no_grad()
def read_prompts(encoder: FreeTextEncoder, prompts: list[str]) -> list[dict[str, str]]:
    """Attribute -> value of every prompt, by the nearest mean of the grammar's prompts."""
    meanings = possible_meanings()
    means = []
    for index, meaning in enumerate(meanings):
        rng = np.random.default_rng([7, index])
        written = [write_prompt(meaning, rng).text for _ in range(PROMPTS_EACH if meaning else 1)]
        means.append(encoder.encode(written if meaning else [""]).mean(0))
    distances = torch.cdist(encoder.encode(prompts).flatten(1), torch.stack(means).flatten(1))
    return [meanings[index] for index in distances.argmin(1).tolist()]


def possible_meanings() -> list[dict[str, str]]:
    """All that a prompt can say: attributes of one family, any of them left out."""
    said: list[dict[str, str]] = []
    for family, names in (("driving", ("weather",)), ("tabletop", ("table", "wall"))):
        choices = [(None, *ATTRIBUTES[name]) for name in ("time_of_day", *names)]
        for values in product(*choices):
            pairs = zip(("time_of_day", *names), values, strict=True)
            said.append({n: v for n, v in pairs if v is not None} | {"family": family})
    bare = [{k: v for k, v in each.items() if k != "family"} for each in said]
    kept = [each for each in bare if "table" not in each and len(each) < 2]
    return said + [dict(pairs) for pairs in dict.fromkeys(tuple(each.items()) for each in kept)]


if __name__ == "__main__":
    main()
