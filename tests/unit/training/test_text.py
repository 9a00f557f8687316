"""The language stage: reads what prompts say, by where words lie."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.inputs.free_text import FIRST_WORD_ID, PADDING_ID, FreeTextEncoder
from cosmos_transfer.training.prompts import ATTRIBUTES
from cosmos_transfer.training.text import (
    AttributeHeads,
    TextTrainer,
    disturb,
    drop_words,
    labels_of,
    load_text,
    train_text,
)
from tests.support.tiny_words import tiny_text_encoder, word_table

WORDS = (
    "a",
    "and",
    "in",
    "the",
    "snow",
    "fog",
    "rain",
    "night",
    "noon",
    "dusk",
    "street",
    "road",
    "robot",
    "table",
    "wall",
    "brick",
    "wooden",
    "marble",
    "metal",
    "cloth",
    "tiled",
)


def encoder(seed: int = 0, **sizes: int) -> FreeTextEncoder:
    torch.manual_seed(seed)
    sizes = {"vector_width": 16, "hidden_width": 32, "max_words": 40} | sizes
    return tiny_text_encoder(WORDS, width=16, **sizes)


def test_a_few_steps_teach_it_to_read() -> None:
    trainer = TextTrainer(encoder(), duration_s=0.0)
    before = trainer.step()
    for group in trainer.optimizer.param_groups:
        group["lr"] = 3e-3
    for _ in range(25):
        trainer.step()
    assert trainer.step() < 0.9 * before


def test_the_same_seed_trains_the_same_encoder() -> None:
    states = []
    for _ in range(2):
        trainer = TextTrainer(encoder(), seed=3, duration_s=0.0)
        trainer.step()
        trainer.step()
        states.append(trainer.encoder.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_the_table_is_not_trained() -> None:
    trainer = TextTrainer(encoder(), duration_s=0.0)
    before = {name: value.clone() for name, value in trainer.encoder.state_dict().items()}
    trainer.step()
    after = trainer.encoder.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert trainer.encoder.frozen() & moved == set()
    assert moved


def test_labels_count_values_in_their_order_and_what_is_not_said_last() -> None:
    said = [{"weather": "clear"}, {}, {"weather": "snow", "time_of_day": "day"}]
    assert labels_of("weather", said).tolist() == [0, 4, 3]
    assert labels_of("time_of_day", said).tolist() == [3, 3, 0]


def test_heads_read_the_value_with_the_highest_score_and_nothing_where_nothing_is_said() -> None:
    heads = AttributeHeads(1, 2)
    with torch.no_grad():
        for head in heads.heads.values():
            head.weight.zero_()
            head.bias.zero_()
            head.bias[-1] = 1.0
        heads.heads["weather"].bias[2] = 2.0
    assert heads.read(torch.zeros(2, 1, 2)) == [{"weather": ATTRIBUTES["weather"][2]}] * 2


def test_words_are_dropped_from_long_prompts_only_and_pauses_never() -> None:
    generator = torch.Generator().manual_seed(0)
    short = torch.full((200, 3), FIRST_WORD_ID)
    assert torch.equal(drop_words(short, generator), short)
    long = torch.cat([torch.full((200, 9), FIRST_WORD_ID), torch.ones(200, 1).long()], dim=1)
    dropped = drop_words(long, generator)
    assert 0 < int((dropped == PADDING_ID).sum()) < 0.1 * long.numel()
    assert torch.equal(dropped[:, -1], long[:, -1])


def test_noise_moves_words_and_leaves_pauses_and_padding() -> None:
    network = encoder()
    ids = network.tokenize(["snow, night", "fog"])
    vectors = network.vectors(ids)
    moved = disturb(vectors, ids, torch.Generator().manual_seed(0))
    words = ids >= FIRST_WORD_ID
    assert bool((moved[words] != vectors[words]).all())
    assert torch.equal(moved[~words], vectors[~words])


def test_what_a_run_keeps_is_taken_up(tmp_path: Path) -> None:
    network = encoder()
    path = train_text(network, run_dir=tmp_path, duration_s=0.0)
    again = encoder(seed=9)
    load_text(again, path)
    with torch.no_grad():
        assert torch.equal(again.encode(["snow"]), network.encode(["snow"]))


def test_a_table_alone_leaves_the_weights_as_they_are(tmp_path: Path) -> None:
    network = encoder()
    before = network.read_vector.weight.clone()
    table = word_table(tuple(reversed(WORDS)), network.settings)
    save_file(table, tmp_path / "words.safetensors")
    load_text(network, tmp_path / "words.safetensors")
    assert torch.equal(network.table, table["table"])
    assert network.tokenize(["tiled"]).tolist() == [[FIRST_WORD_ID]]
    assert torch.equal(network.read_vector.weight, before)


@pytest.mark.parametrize("content", [b"", b"no safetensors", None])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "words.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{len(WORDS)} words"):
        load_text(encoder(), path)


def test_half_an_encoder_is_refused(tmp_path: Path) -> None:
    network = encoder()
    state = {name: value for name, value in network.state_dict().items() if "queries" not in name}
    save_file(state, tmp_path / "part.safetensors")
    with pytest.raises(CheckpointError, match="queries"):
        load_text(encoder(), tmp_path / "part.safetensors")
