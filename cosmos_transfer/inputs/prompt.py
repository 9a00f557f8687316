"""Prompt text to text tokens: what every text encoder does, whatever the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from jaxtyping import Float
from torch import Tensor


class TextEncoder(Protocol):
    """Prompts to the tokens that the model's cross-attention reads."""

    def encode(self, prompts: Sequence[str]) -> Float[Tensor, "b m d"]:
        """Encode prompts; an empty prompt is the unconditional one."""
        ...

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """Words of the prompt that the encoder cannot represent."""
        ...


def split_words(prompt: str) -> list[str]:
    """Lower-case words of any script in order; digits and punctuation separate them."""
    return re.findall(r"[^\W\d_]+", prompt.lower())
