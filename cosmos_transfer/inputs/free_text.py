"""The embedded checkpoint's encoder of prompts in free words.

What a word means comes from a frozen table of word vectors; the rest is small and trained: the
words' vectors, their order and the pauses between them are mixed by a transformer, and a few
learned queries read the outcome. A word outside the table is looked for under its stem, as a
compound, and with one letter amended, in this order; what is still unknown is left out, and
``unknown_words`` says so.

Source:
    The table is made by ``scripts/make_word_vectors.py`` from all-MiniLM-L6-v2 (Apache-2.0) and
    the word lists of SCOWL.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

PADDING_ID = 0
PAUSE_ID = 1
FIRST_WORD_ID = 2

LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Ending -> what may stand in its place, for words that the table lacks.
ENDINGS = (
    ("ies", "y"), ("ied", "y"), ("ily", "y"), ("iness", "y"), ("ier", "y"), ("iest", "y"),
    ("es", "e"), ("es", ""), ("s", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""),
    ("ly", ""), ("ness", ""), ("y", ""), ("y", "e"), ("ish", ""), ("like", ""), ("or", "e"),
)  # fmt: skip
SHORTEST_PART = 3  # letters of each half of a compound
SHORTEST_AMENDED = 4  # letters of a word whose spelling is amended


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeTextConfig:
    """Sizes of the encoder and of its table of words."""

    num_words: int = 31_941
    longest_word: int = 18
    vector_width: int = 128
    max_words: int = 64
    hidden_width: int = 128
    num_layers: int = 2
    num_heads: int = 4
    num_tokens: int = 16
    width: int = 64


class FreeTextEncoder(nn.Module):
    """Prompts in free words to a fixed number of tokens; an empty prompt is the unconditional one.

    The table comes with the weights: ``spellings`` holds the words, most frequent first, ``table``
    their vectors in units of ``scales``. A network that is built and not loaded knows no words.
    """

    spellings: UInt8[Tensor, "words letters"]
    table: Int[Tensor, "words e"]
    scales: Float[Tensor, " e"]

    def __init__(self, config: FreeTextConfig) -> None:
        super().__init__()
        self.settings = config
        hidden = config.hidden_width
        words = (config.num_words, config.longest_word)
        self.register_buffer("spellings", torch.zeros(words, dtype=torch.uint8))
        self.register_buffer(
            "table", torch.zeros(config.num_words, config.vector_width, dtype=torch.int8)
        )
        self.register_buffer("scales", torch.ones(config.vector_width))
        self.read_vector = nn.Linear(config.vector_width, hidden)
        # The start of every prompt, and a pause within it.
        self.marks = nn.Parameter(torch.randn(2, hidden) * 0.3)
        self.places = nn.Parameter(torch.randn(config.max_words + 1, hidden) * 0.02)
        self.mix = nn.ModuleList(
            nn.TransformerEncoderLayer(
                hidden,
                config.num_heads,
                dim_feedforward=2 * hidden,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.queries = nn.Parameter(torch.randn(config.num_tokens, hidden) * 0.3)
        self.gather = nn.MultiheadAttention(hidden, config.num_heads, batch_first=True)
        self.write = nn.Sequential(
            nn.LayerNorm(hidden),
            nn.Linear(hidden, 2 * hidden),
            nn.GELU(),
            nn.Linear(2 * hidden, config.width),
        )
        self._word_ids: dict[str, int] | None = None
        self.register_load_state_dict_post_hook(_forget_words)

    @property
    def config(self) -> dict[str, Any]:
        """The settings as a JSON-ready mapping."""
        return asdict(self.settings)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FreeTextEncoder:
        """Build an untrained encoder from :attr:`config`; it knows no words until it is loaded."""
        return cls(FreeTextConfig(**config))

    @property
    def word_ids(self) -> dict[str, int]:
        """Word -> its id; the more frequent, the lower."""
        if self._word_ids is None:
            rows = self.spellings.cpu().numpy()
            spelled = (bytes(row).rstrip(b"\0").decode("ascii") for row in rows)
            self._word_ids = {
                word: index + FIRST_WORD_ID for index, word in enumerate(spelled) if word
            }
        return self._word_ids

    def frozen(self) -> frozenset[str]:
        """Names in the state of what training leaves as it is."""
        return frozenset({"spellings", "table", "scales"})

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """Words without an entry, and words there is no room for; each once."""
        return self._read(prompt)[1]

    def tokenize(self, prompts: Sequence[str]) -> Int[Tensor, "b m"]:
        """Ids of words and pauses, padded with zeros to the longest prompt; at least one column.

        What does not fit into ``max_words`` is dropped, and so are pauses with no words on both
        sides.
        """
        rows = [self._read(prompt)[0] for prompt in prompts]
        longest = max(1, *(len(row) for row in rows)) if rows else 1
        padded = [row + [PADDING_ID] * (longest - len(row)) for row in rows]
        return torch.tensor(padded, dtype=torch.long).reshape(len(rows), longest)

    def vectors(self, ids: Int[Tensor, "b m"]) -> Float[Tensor, "b m e"]:
        """The words' vectors; zero for pauses and padding."""
        rows = self.table[(ids - FIRST_WORD_ID).clamp_min(0)].to(self.scales.dtype) * self.scales
        return rows * (ids >= FIRST_WORD_ID)[..., None]

    def mix_vectors(
        self, vectors: Float[Tensor, "b m e"], ids: Int[Tensor, "b m"]
    ) -> Float[Tensor, "b k d"]:
        """Tokens from the words' vectors; ``ids`` say what is a pause and what is padding."""
        x = self.read_vector(vectors) + self.marks[1] * (ids == PAUSE_ID)[..., None]
        start = self.marks[0].expand(len(x), 1, -1)
        x = torch.cat([start, x], dim=1)
        x = x + self.places[: x.shape[1]]
        padding: Bool[Tensor, "b m"] = functional.pad(ids == PADDING_ID, (1, 0), value=False)
        for layer in self.mix:
            x = layer(x, src_key_padding_mask=padding)
        x = self.norm(x)
        queries = self.queries.expand(len(x), -1, -1)
        read, _ = self.gather(queries, x, x, key_padding_mask=padding, need_weights=False)
        return self.write(queries + read)

    def forward(self, ids: Int[Tensor, "b m"]) -> Float[Tensor, "b k d"]:
        """Tokens from the ids of :meth:`tokenize`."""
        return self.mix_vectors(self.vectors(ids), ids)

    def encode(self, prompts: Sequence[str]) -> Float[Tensor, "b k d"]:
        """Tokens of prompts."""
        return self(self.tokenize(prompts).to(self.places.device))

    def _read(self, prompt: str) -> tuple[list[int], tuple[str, ...]]:
        """The ids of a prompt, and what was left out."""
        ids: list[int] = []
        left_out: dict[str, None] = {}
        pause = False
        for piece in split_prompt(prompt):
            if piece == PAUSE:
                pause = bool(ids)
                continue
            found = self._ids_of(piece)
            if not found or len(ids) + pause + len(found) > self.settings.max_words:
                left_out[piece] = None
                continue
            ids += [PAUSE_ID] * pause + found
            pause = False
        return ids, tuple(left_out)

    def _ids_of(self, piece: str) -> list[int]:
        """The ids that stand for a word; none where it is unknown."""
        known = self.word_ids
        for word in (piece, _without_accents(piece)):
            if word in known:
                return [known[word]]
        for stem in stems(piece):
            if stem in known:
                return [known[stem]]
        splits = [
            [known[piece[:place]], known[piece[place:]]]
            for place in range(SHORTEST_PART, len(piece) - SHORTEST_PART + 1)
            if piece[:place] in known and piece[place:] in known
        ]
        if splits:
            return min(splits, key=max)  # the halves that are both frequent
        if len(piece) >= SHORTEST_AMENDED:
            for amended in _amended(piece):
                found = [known[word] for word in amended if word in known]
                if found:
                    return [min(found)]
        return []


PAUSE = ","


def split_prompt(prompt: str) -> Iterator[str]:
    """Lower-case words in order, and a comma for every mark that makes a pause.

    Single letters, digits and the possessive "s" are left out; "isn't" is "is not".
    """
    text = prompt.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    text = text.replace("can't", "can not").replace("won't", "will not").replace("n't", " not")
    text = re.sub(r"'(s|re|ll|ve|d|m)\b", " ", text)
    for piece in re.findall(r"[^\W\d_]+|[,.;:!?\n]", text):
        if piece in ",.;:!?\n":
            yield PAUSE
        elif len(piece) > 1 or piece == "a" or not piece.isascii():
            yield piece


def stems(word: str) -> Iterator[str]:
    """What a word may be a form of, the likelier first; some are no words."""
    for ending, put in ENDINGS:
        if word.endswith(ending):
            stem = word.removesuffix(ending) + put
            if len(stem) >= SHORTEST_PART:
                yield stem


def _forget_words(module: nn.Module, _: Any) -> None:
    module._word_ids = None  # type: ignore[assignment]  # built again from what was loaded


def _without_accents(word: str) -> str:
    parts = unicodedata.normalize("NFKD", word)
    return "".join(letter for letter in parts if not unicodedata.combining(letter))


def _amended(word: str) -> Iterator[list[str]]:
    """Spellings one slip away, the likelier slips first."""
    places = range(len(word))
    yield [word[:i] + word[i + 1 :] for i in places if word[i : i + 1] == word[i + 1 : i + 2]]
    yield [
        word[:i] + after + before + word[i + 2 :]
        for i, (before, after) in enumerate(pairwise(word))
        if before != after
    ]
    yield [word[: i + 1] + letter + word[i + 1 :] for i in places for letter in LETTERS]
    yield [word[:i] + word[i + 1 :] for i in places if i > 0]
    yield [word[:i] + letter + word[i + 1 :] for i in places if i > 0 for letter in LETTERS]
