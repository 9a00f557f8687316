"""Our Cosmos text encoder against diffusers' prompt encoding, on a tiny random Qwen2.5-VL."""

from __future__ import annotations

import pytest
import torch
from diffusers import Cosmos2_5_TransferPipeline
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from cosmos_transfer.model.prompt_embeddings import CosmosTextEncoder, load_cosmos_text_encoder
from tests.support.numerics import assert_agrees, relative_rms

MAX_TOKENS = 12
TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content[0].text }} {% endfor %}"
PROMPTS = ["a snowy street at night", "a street", "a a a a a a a a a a a a a a a a a a a a a a a"]


@pytest.fixture(scope="module")
def tokenizer():
    words = ["[PAD]", "[UNK]", "system", "user", "a", "snowy", "street", "at", "night"]
    model = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    model.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="[PAD]", unk_token="[UNK]", chat_template=TEMPLATE
    )


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 9,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]},
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [0],
        },
    )
    return Qwen2_5_VLForConditionalGeneration(config).eval()


@pytest.fixture(scope="module")
def encoder(network, tokenizer):
    # Long enough for the system prompt and a few words of the user's.
    return CosmosTextEncoder(network, tokenizer, max_tokens=32)


class Bare(Cosmos2_5_TransferPipeline):
    """Only what encoding a prompt needs; their constructor wants every part."""

    def __init__(self, network, tokenizer):
        self.text_encoder, self.tokenizer = network, tokenizer

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


def test_prompts_are_encoded_as_the_published_pipeline_does(encoder, network, tokenizer):
    with torch.no_grad():
        expected = Bare(network, tokenizer)._get_prompt_embeds(
            PROMPTS, max_sequence_length=32, device=torch.device("cpu"), dtype=torch.float32
        )
    encoded = encoder.encode(PROMPTS)
    assert encoded.shape == (3, 32, 3 * 32)
    assert_agrees(encoded, expected, rms=1e-6)
    assert relative_rms(encoded[0], expected[1]) > 1e-2


def test_no_word_is_unknown(encoder):
    assert encoder.unknown_words("xyzzy") == ()


def test_an_encoder_comes_back_from_a_folder(encoder, network, tokenizer, tmp_path):
    network.save_pretrained(tmp_path / "text_encoder")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    loaded = load_cosmos_text_encoder(
        tmp_path, dtype=torch.float32, revision=None, local_files_only=True
    )
    loaded.max_tokens = 32
    assert_agrees(loaded.encode(PROMPTS[:1]), encoder.encode(PROMPTS[:1]), rms=1e-6)
