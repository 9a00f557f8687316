"""Make the table of word vectors that the embedded checkpoint's text encoder starts from.

Usage:
    python scripts/make_word_vectors.py MODEL OUTPUT --words LIST [LIST ...]

MODEL is a folder with all-MiniLM-L6-v2 as transformers reads it (Apache-2.0; the PyPI package gt-
all-minilm-l6-v2 holds one), the lists are text files with a word a line (american-english-small
and british-english-small of Debian's wamerican-small and wbritish-small: SCOWL). The words are
those of the model's own vocabulary, which is sorted by how frequent they are, then those of the
lists. A word's vector is what the model makes of it on its own and in a few short phrases, with
what all words have in common taken off, reduced to its principal components, and stored in eight
bits. The same input gives the same table.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from cosmos_transfer.inputs.free_text import stems

PHRASES = ("{}", "a {} table", "{} weather", "at {}")
LONGEST_WORD = 18
VECTOR_WIDTH = 128
BATCH_SIZE = 512
# Principal components differ in size a thousandfold; a network reads them better closer together.
EVENNESS = 0.5


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--words", type=Path, nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    words = collect_words(arguments.model / "vocab.txt", arguments.words)
    table, scales = quantise(reduce(embed(words, arguments.model), VECTOR_WIDTH))
    save_file({"spellings": spell(words), "table": table, "scales": scales}, str(arguments.output))
    print(f"{len(words)} words in {arguments.output}")


def collect_words(vocabulary: Path, lists: Iterable[Path]) -> list[str]:
    """Words of two letters or more and "a", lower case, in the order of the files, each once.

    Of the lists, forms of a word that is there already are left out: the encoder finds its stem.
    """
    words = dict.fromkeys(_read_words(vocabulary))
    for path in lists:
        for word in _read_words(path):
            if not any(stem in words for stem in stems(word)):
                words[word] = None
    return list(words)


def _read_words(path: Path) -> Iterator[str]:
    for line in path.read_text("utf-8").splitlines():
        word = line.strip().lower()
        if word == "a" or re.fullmatch(f"[a-z]{{2,{LONGEST_WORD}}}", word):
            yield word


@torch.no_grad()
def embed(words: Sequence[str], folder: Path) -> np.ndarray:
    """Vectors of the words in every phrase, side by side; the mean of each column is zero."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    # Phrases of equal length share a batch: nothing is spent on padding.
    by_length = sorted(range(len(words)), key=lambda index: len(tokenizer.tokenize(words[index])))
    columns = []
    for phrase in PHRASES:
        vectors = np.empty((len(words), model.config.hidden_size), dtype=np.float32)
        for start in range(0, len(words), BATCH_SIZE):
            chosen = by_length[start : start + BATCH_SIZE]
            texts = [phrase.format(words[index]) for index in chosen]
            tokens = tokenizer(texts, padding=True, return_tensors="pt")
            states = model(**tokens).last_hidden_state
            mask = tokens["attention_mask"][..., None].to(states.dtype)
            mean = (states * mask).sum(1) / mask.sum(1)
            vectors[chosen] = torch.nn.functional.normalize(mean, dim=-1).numpy()
        columns.append(vectors - vectors.mean(0))
    return np.concatenate(columns, axis=1)


def reduce(vectors: np.ndarray, width: int) -> np.ndarray:
    """The first principal components, brought closer to each other in size."""
    values, axes = np.linalg.eigh(vectors.T @ vectors / len(vectors))
    axes, values = axes[:, ::-1][:, :width], values[::-1][:width]
    axes = axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(width)])  # a sign that is decided
    return (vectors @ axes) / values ** (EVENNESS / 2) / values[0] ** ((1 - EVENNESS) / 2)


def quantise(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight bits a component, the largest thousandth of each cut off."""
    scales = (np.quantile(np.abs(vectors), 0.999, axis=0) / 127).astype(np.float32)
    return np.clip(np.rint(vectors / scales), -127, 127).astype(np.int8), scales


def spell(words: Sequence[str]) -> np.ndarray:
    """Letters as bytes, a row a word, filled up with zeros."""
    rows = [word.encode("ascii").ljust(LONGEST_WORD, b"\0") for word in words]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(words), LONGEST_WORD)


if __name__ == "__main__":
    main()
