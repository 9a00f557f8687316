"""Prompt text to text tokens: the protocol, and the embedded checkpoint's encoder.

The embedded encoder knows a fixed vocabulary of words. A word outside it is left out, never
guessed: the picture then follows the words that are known, and ``unknown_words`` says which were
dropped, those beyond the longest prompt it reads included, so that the record can.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

PADDING_ID = 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyTextConfig:
    """Sizes and words of the embedded text encoder."""

    words: Sequence[str]
    ignored_words: Sequence[str] = ()  # known to carry no picture: articles, prepositions
    max_words: int = 16
    width: int = 64
    num_heads: int = 4


class VocabularyTextEncoder(nn.Module):
    """Word and place embeddings, mixed by one transformer layer.

    The layer lets neighbours bind ("brick wall" is not "brick table"). Padding tokens are
    embedded too, so that the number of tokens is the same for every prompt.
    """

    def __init__(self, config: VocabularyTextConfig) -> None:
        super().__init__()
        self.settings = config
        self._word_ids = {word: index + 1 for index, word in enumerate(config.words)}
        self._ignored = frozenset(config.ignored_words)
        self.words = nn.Embedding(len(config.words) + 1, config.width)
        self.places = nn.Parameter(torch.randn(config.max_words, config.width) * 0.02)
        self.mix = nn.TransformerEncoderLayer(
            config.width,
            config.num_heads,
            dim_feedforward=2 * config.width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )

    @property
    def config(self) -> dict[str, Any]:
        """The settings as a JSON-ready mapping."""
        return asdict(self.settings)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> VocabularyTextEncoder:
        """Build an untrained encoder from :attr:`config`."""
        return cls(VocabularyTextConfig(**config))

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """Words outside the vocabulary, articles and the like aside, and words there is no room
        for; each once."""
        left_out: dict[str, None] = {}
        room = self.settings.max_words
        for word in split_words(prompt):
            if word in self._word_ids and room > 0:
                room -= 1
            elif word in self._word_ids or word not in self._ignored:
                left_out[word] = None
        return tuple(left_out)

    def tokenize(self, prompts: Sequence[str]) -> Int[Tensor, "b m"]:
        """Word ids, padded with zeros; words beyond ``max_words`` known ones are dropped."""
        ids = torch.full((len(prompts), self.settings.max_words), PADDING_ID)
        for row, prompt in enumerate(prompts):
            known = [self._word_ids[w] for w in split_words(prompt) if w in self._word_ids]
            known = known[: self.settings.max_words]
            ids[row, : len(known)] = torch.tensor(known, dtype=ids.dtype)
        return ids

    def forward(self, ids: Int[Tensor, "b m"]) -> Float[Tensor, "b m d"]:
        """Embed word ids and let neighbours mix."""
        return self.mix(self.words(ids) + self.places)

    def encode(self, prompts: Sequence[str]) -> Float[Tensor, "b m d"]:
        """Tokenize and embed prompts."""
        return self(self.tokenize(prompts).to(self.places.device))
