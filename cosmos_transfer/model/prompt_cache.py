"""Encoded prompts on disk, so that a text encoder larger than the model runs once, or elsewhere.

What is kept is what the model reads: tokens after the projection that the base and its branches
share, 1 MB a prompt instead of 103 MB. A file is named by the hash of the prompt and of what
encoded it; a cache made for one checkpoint is never read by another.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from cosmos_transfer.errors import CheckpointError, explain


def encoder_identity(transformer: nn.Module, checkpoint_id: str) -> str:
    """What tells two encoders apart: the projection that follows them, or the checkpoint's id."""
    projection = getattr(transformer, "crossattn_proj", None)
    if not isinstance(projection, nn.Module):
        return checkpoint_id
    digest = hashlib.sha256()
    for name, value in sorted(projection.state_dict().items()):
        digest.update(name.encode())
        # In bfloat16, as published: a model computing in another dtype reads the same cache.
        digest.update(value.detach().cpu().to(torch.bfloat16).view(torch.int16).numpy().tobytes())
    return digest.hexdigest()


class CachedTextEncoder:
    """Prompts that were encoded before; keeps the text encoder protocol.

    Args:
        folder: Where the encoded prompts are.
        identity: From :func:`encoder_identity`.
        encoder: Encodes what is missing; None makes a missing prompt an error.
        projection: Follows the encoder; None where there is none.
    """

    def __init__(
        self,
        folder: str | Path,
        identity: str,
        *,
        encoder: Any = None,
        projection: nn.Module | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.identity = identity
        self._encoder = encoder
        self._projection = projection

    def path_of(self, prompt: str) -> Path:
        """The file of a prompt, whether it is there or not."""
        digest = hashlib.sha256(f"{self.identity}\n{prompt}".encode()).hexdigest()
        return self.folder / f"{digest}.safetensors"

    @torch.no_grad()
    def encode(self, prompts: Sequence[str]) -> Float[Tensor, "b m d"]:
        """The tokens of prompts, from disk where they are there.

        Raises:
            CheckpointError: A prompt was not encoded before and there is no encoder; or its file
                is damaged.
        """
        return torch.cat([self._tokens(prompt) for prompt in prompts])

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """What the encoder leaves out, where it is at hand."""
        if self._encoder is None:
            return ()
        unknown: tuple[str, ...] = self._encoder.unknown_words(prompt)
        return unknown

    def _tokens(self, prompt: str) -> Float[Tensor, "1 m d"]:
        path = self.path_of(prompt)
        if path.is_file():
            return _read(path, prompt)
        if self._encoder is None:
            raise CheckpointError(
                explain(
                    "prompt",
                    expected=f"it encoded before, in {self.folder}",
                    got=f"{prompt[:60]!r}",
                    do="Run cosmos-transfer embed with it where the text encoder is.",
                )
            )
        tokens: Tensor = self._encoder.encode([prompt])
        if self._projection is not None:
            weight = next(self._projection.parameters())
            tokens = self._projection(tokens.to(device=weight.device, dtype=weight.dtype))
        _write(path, tokens, prompt)
        return tokens


def _read(path: Path, prompt: str) -> Float[Tensor, "1 m d"]:
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("prompt") != prompt:
                raise ValueError("it was written for another prompt")
            tokens: Tensor = file.get_tensor("tokens")
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            explain(
                f"encoded prompt {path.name}",
                expected="tokens in safetensors",
                got=f"{error}",
                do="Delete the file and encode the prompt again.",
            )
        ) from error
    return tokens


def _write(path: Path, tokens: Float[Tensor, "1 m d"], prompt: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        content = {"tokens": tokens.detach().cpu().contiguous().clone()}
        save_file(content, draft, {"prompt": prompt})
        draft.chmod(0o644)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
