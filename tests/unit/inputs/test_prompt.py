from __future__ import annotations

from cosmos_transfer.inputs.prompt import split_words


def test_a_prompt_is_split_into_words() -> None:
    assert split_words("A snowy street, at 5 o'clock") == [
        "a",
        "snowy",
        "street",
        "at",
        "o",
        "clock",
    ]
