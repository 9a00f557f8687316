"""A text encoder that knows a few words, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cosmos_transfer.inputs.free_text import FreeTextConfig, FreeTextEncoder


def tiny_text_encoder(
    words: Sequence[str] = ("snow", "night"), *, width: int, **sizes: int
) -> FreeTextEncoder:
    """Random weights and word vectors from torch's seed; ``sizes`` are the configuration's."""
    small = {"vector_width": 4, "max_words": 8, "hidden_width": 8, "num_layers": 1, "num_heads": 2}
    config = FreeTextConfig(
        num_words=len(words), **(small | {"num_tokens": 3, "width": width} | sizes)
    )
    encoder = FreeTextEncoder(config)
    encoder.load_state_dict(word_table(words, config), strict=False)
    return encoder


def word_table(words: Sequence[str], config: FreeTextConfig) -> dict[str, torch.Tensor]:
    """The table of words as the encoder's state holds it, with random vectors."""
    rows = [list(word.encode("ascii").ljust(config.longest_word, b"\0")) for word in words]
    return {
        "spellings": torch.tensor(rows, dtype=torch.uint8),
        "table": torch.randint(-127, 128, (len(words), config.vector_width), dtype=torch.int8),
        "scales": torch.full((config.vector_width,), 0.01),
    }
