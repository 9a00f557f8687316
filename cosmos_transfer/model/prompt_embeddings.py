"""The published checkpoints' text encoders.

Cosmos 2.5: every hidden layer of Qwen2.5-VL, normalised and side by side. A prompt becomes 512
tokens of 28 * 3584 = 100,352 numbers, which the base and its branches project to 1,024. The vision
half of the encoder is not used.
Cosmos-Transfer1: the last layer of T5-11B, 512 tokens of 1,024, zero after the prompt's end.

Either encoder is larger than the denoiser; ``prompt_cache`` keeps what they said on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.errors import CheckpointError, explain

# The conversation the encoder was trained with; part of the checkpoint, not ours to phrase.
SYSTEM_PROMPT = "You are a helpful assistant who will provide prompts to an image generator."
MAX_TOKENS = 512


class CosmosTextEncoder(nn.Module):
    """A Qwen2.5-VL model and its tokenizer behind the text encoder protocol."""

    def __init__(self, network: nn.Module, tokenizer: Any, *, max_tokens: int = MAX_TOKENS) -> None:
        super().__init__()
        self.network = network
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens

    @torch.no_grad()
    def encode(self, prompts: Sequence[str]) -> Float[Tensor, "b m d"]:
        """Encode prompts, each padded to the same number of tokens.

        Source:
            Cosmos-Predict2.5, as in diffusers' ``Cosmos2_5_TransferPipeline``: padding is attended
            to like any token.
        """
        ids = torch.tensor([self._token_ids(prompt) for prompt in prompts])
        device = next(self.network.parameters()).device
        outputs = self.network(ids.to(device), output_hidden_states=True)
        layers = [_normalize(layer) for layer in outputs.hidden_states[1:]]  # 0 is the embedding
        return torch.cat(layers, dim=-1)

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """None: the tokenizer spells any word."""
        return ()

    def _token_ids(self, prompt: str) -> list[int]:
        ids = self.tokenizer.apply_chat_template(
            [
                {"role": "system", "content": [{"type": "text", "text": SYSTEM_PROMPT}]},
                {"role": "user", "content": [{"type": "text", "text": prompt}]},
            ],
            tokenize=True,
            add_generation_prompt=False,
            add_vision_id=False,
            max_length=self.max_tokens,
            truncation=True,
            padding="max_length",
        )
        if isinstance(ids, Mapping):  # what transformers 5 returns
            ids = ids["input_ids"]
        return list(ids)


def load_cosmos_text_encoder(
    location: str | Path, *, dtype: torch.dtype, revision: str | None, local_files_only: bool
) -> CosmosTextEncoder:
    """Load ``text_encoder/`` and ``tokenizer/`` of a checkpoint in diffusers' layout.

    Raises:
        CheckpointError: One of them is missing or unreadable.
    """
    from transformers import Qwen2_5_VLForConditionalGeneration

    network, tokenizer = _load_encoder(
        Qwen2_5_VLForConditionalGeneration,
        location,
        dtype=dtype,
        revision=revision,
        local_files_only=local_files_only,
    )
    return CosmosTextEncoder(network, tokenizer)


class T5TextEncoder(nn.Module):
    """A T5 encoder and its tokenizer behind the text encoder protocol."""

    def __init__(self, network: nn.Module, tokenizer: Any, *, max_tokens: int = MAX_TOKENS) -> None:
        super().__init__()
        self.network = network
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens

    @torch.no_grad()
    def encode(self, prompts: Sequence[str]) -> Float[Tensor, "b m d"]:
        """Encode prompts, each padded to the same number of tokens.

        Source:
            Cosmos-Transfer1 and diffusers' ``CosmosVideoToWorldPipeline``: tokens after the end of
            a prompt are zeros.
        """
        batch = self.tokenizer(
            list(prompts),
            padding="max_length",
            max_length=self.max_tokens,
            truncation=True,
            return_tensors="pt",
        )
        device = next(self.network.parameters()).device
        ids, mask = batch["input_ids"].to(device), batch["attention_mask"].to(device)
        hidden: Tensor = self.network(ids, attention_mask=mask).last_hidden_state
        return hidden * mask[..., None].to(hidden.dtype)

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """None: the tokenizer spells any word."""
        return ()


def load_t5_encoder(
    location: str | Path, *, dtype: torch.dtype, revision: str | None, local_files_only: bool
) -> T5TextEncoder:
    """Load ``text_encoder/`` and ``tokenizer/`` of a Transfer1 checkpoint.

    Raises:
        CheckpointError: One of them is missing or unreadable.
    """
    from transformers import T5EncoderModel

    network, tokenizer = _load_encoder(
        T5EncoderModel,
        location,
        dtype=dtype,
        revision=revision,
        local_files_only=local_files_only,
    )
    return T5TextEncoder(network, tokenizer)


def _load_encoder(
    network_class: Any,
    location: str | Path,
    *,
    dtype: torch.dtype,
    revision: str | None,
    local_files_only: bool,
) -> tuple[nn.Module, Any]:
    """A network of transformers' and its tokenizer, from the two folders of a checkpoint."""
    from transformers import AutoTokenizer

    options: dict[str, Any] = {"local_files_only": local_files_only}
    if revision is not None:
        options["revision"] = revision
    try:
        tokenizer = AutoTokenizer.from_pretrained(location, subfolder="tokenizer", **options)
        network = network_class.from_pretrained(
            location, subfolder="text_encoder", dtype=dtype, use_safetensors=True, **options
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(
            explain(
                f"checkpoint {location}",
                expected="text_encoder/ and tokenizer/",
                got=" ".join(str(error).split())[:400],
                do="Fetch them, or encode the prompts elsewhere with cosmos-transfer embed.",
            )
        ) from error
    return network, tokenizer


def _normalize(layer: Float[Tensor, "b m d"]) -> Float[Tensor, "b m d"]:
    centred = layer - layer.mean(dim=-1, keepdim=True)
    return centred / (layer.std(dim=-1, keepdim=True) + 1e-8)
