"""Trains the text encoder on prompts alone, before any picture.

Heads that are thrown away afterwards read the attributes of a look off the encoder's tokens. So the
tokens of a prompt say what the prompt says, whatever its words, and the denoiser, trained after it,
meets a prompt in other words as one it knows. Words that the grammar lacks are met through their
vectors: these are disturbed, and words are left out, so that what is learned is where a word lies
and not which it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.inputs.free_text import FIRST_WORD_ID, PADDING_ID, FreeTextEncoder
from cosmos_transfer.training.prompts import ATTRIBUTES, draw_attributes, write_prompt

RATE = 2e-3
WEIGHT_DECAY = 0.05
BATCH_SIZE = 128
WARMUP_STEPS = 200
# Of the mean length of a word's vector; drawn for every prompt between nothing and this.
LARGEST_NOISE = 0.8
SHARE_DROPPED = 0.04  # of the words
LOG_EVERY = 100
TEXT_FILE = "text_encoder.safetensors"
"""What a run keeps of the language stage, for the stages that follow."""
NOT_SAID = "-"


class AttributeHeads(nn.Module):
    """Attribute -> scores of its values and, last, of its not being said, from all tokens."""

    def __init__(self, num_tokens: int, width: int) -> None:
        super().__init__()
        self.heads = nn.ModuleDict(
            {
                attribute: nn.Linear(num_tokens * width, len(values) + 1)
                for attribute, values in ATTRIBUTES.items()
            }
        )

    def forward(self, tokens: Float[Tensor, "b k d"]) -> dict[str, Float[Tensor, "b v"]]:
        """Scores."""
        flat = tokens.flatten(1)
        return {attribute: head(flat) for attribute, head in self.heads.items()}

    def read(self, tokens: Float[Tensor, "b k d"]) -> list[dict[str, str]]:
        """Attribute -> value of every prompt, those that are said."""
        best = {name: scores.argmax(1).tolist() for name, scores in self(tokens).items()}
        return [
            {
                name: ATTRIBUTES[name][rows[index]]
                for name, rows in best.items()
                if rows[index] < len(ATTRIBUTES[name])
            }
            for index in range(len(tokens))
        ]


class TextTrainer:
    """One run of the language stage."""

    def __init__(self, encoder: FreeTextEncoder, *, seed: int = 0, duration_s: float) -> None:
        self.encoder = encoder
        self.heads = AttributeHeads(encoder.settings.num_tokens, encoder.settings.width)
        self.duration_s = duration_s
        self.seed = seed
        self.num_steps = 0
        encoder.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(
            [*encoder.parameters(), *self.heads.parameters()],
            lr=RATE,
            betas=(0.9, 0.98),
            weight_decay=WEIGHT_DECAY,
        )

    def run(self) -> Iterator[dict[str, float]]:
        """Train until the time is up; a line of figures every hundred steps."""
        started = time.monotonic()
        losses: list[float] = []
        while (spent := time.monotonic() - started) < self.duration_s:
            warm = min(1.0, (self.num_steps + 1) / WARMUP_STEPS)
            for group in self.optimizer.param_groups:
                group["lr"] = RATE * warm * (1.0 - spent / self.duration_s)
            losses.append(self.step())
            if len(losses) == LOG_EVERY:
                yield {"step": self.num_steps, "loss": round(float(np.mean(losses)), 4)}
                losses = []

    def step(self) -> float:
        """One step on one batch of new prompts; returns its loss."""
        rng = np.random.default_rng([self.seed, self.num_steps])
        prompts = [write_prompt(draw_attributes(rng), rng) for _ in range(BATCH_SIZE)]
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        ids = self.encoder.tokenize([prompt.text for prompt in prompts])
        ids = drop_words(ids, generator)
        vectors = disturb(self.encoder.vectors(ids), ids, generator)
        tokens = self.encoder.mix_vectors(vectors, ids)
        loss = self.loss(tokens, [prompt.attributes for prompt in prompts])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.encoder.parameters(), 1.0)
        self.optimizer.step()
        self.num_steps += 1
        return loss.item()

    def loss(self, tokens: Float[Tensor, "b k d"], said: list[Mapping[str, str]]) -> Tensor:
        """Cross-entropy of the attributes, summed."""
        losses = [
            functional.cross_entropy(scores, labels_of(name, said))
            for name, scores in self.heads(tokens).items()
        ]
        return torch.stack(losses).sum()


def labels_of(attribute: str, said: list[Mapping[str, str]]) -> Int[Tensor, " b"]:
    """The number of every prompt's value; the number after the last where it says none."""
    values = (*ATTRIBUTES[attribute], NOT_SAID)
    return torch.tensor([values.index(each.get(attribute, NOT_SAID)) for each in said])


def drop_words(ids: Int[Tensor, "b m"], generator: torch.Generator) -> Int[Tensor, "b m"]:
    """Leave a few words out of prompts that have more than three; they become padding."""
    drawn = torch.rand(ids.shape, generator=generator) < SHARE_DROPPED
    long = ((ids >= FIRST_WORD_ID).sum(1, keepdim=True)) > 3
    return ids.masked_fill(drawn & long & (ids >= FIRST_WORD_ID), PADDING_ID)


def disturb(
    vectors: Float[Tensor, "b m e"], ids: Int[Tensor, "b m"], generator: torch.Generator
) -> Float[Tensor, "b m e"]:
    """Add noise to the words' vectors, as much as the prompt drew."""
    words = (ids >= FIRST_WORD_ID)[..., None]
    deviation = vectors.norm(dim=-1).sum() / words.sum().clamp_min(1) / vectors.shape[-1] ** 0.5
    amount = torch.rand((len(vectors), 1, 1), generator=generator) * LARGEST_NOISE * deviation
    return vectors + words * amount * torch.randn(vectors.shape, generator=generator)


def load_text(encoder: FreeTextEncoder, path: Path) -> None:
    """Put into an encoder what :func:`train_text` kept, or only the table of words.

    Args:
        encoder: Of the same sizes.
        path: ``text_encoder.safetensors`` of a run, or a table of ``scripts/make_word_vectors.py``.

    Raises:
        CheckpointError: No such file, or one for other sizes.
    """
    try:
        found = load_file(path)
        missing, unexpected = encoder.load_state_dict(found, strict=False)
        if unexpected or (missing and set(found) != encoder.frozen()):
            raise ValueError(f"other tensors: {', '.join([*missing, *unexpected][:3])}")
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            explain(
                str(path),
                expected=f"a text encoder or a table, of {encoder.settings.num_words} words",
                got=f"{error}".splitlines()[0],
                do="Train it, or make a table with scripts/make_word_vectors.py.",
            )
        ) from error


def train_text(
    encoder: FreeTextEncoder, *, run_dir: Path, duration_s: float, seed: int = 0
) -> Path:
    """Run the language stage and keep the encoder in ``run_dir``; lines of figures beside it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / "text_metrics.jsonl").open("w", encoding="utf-8") as file:
        for entry in TextTrainer(encoder, seed=seed, duration_s=duration_s).run():
            file.write(json.dumps(entry) + "\n")
            file.flush()
    path = run_dir / TEXT_FILE
    partial = path.with_suffix(".partial")
    save_file({name: value.contiguous() for name, value in encoder.state_dict().items()}, partial)
    partial.replace(path)
    return path
