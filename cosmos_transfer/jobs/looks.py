"""The library of looks: words for a time of day, a weather, a table, a wall.

A look is a file of ``cosmos_transfer/cli/configs/look`` that sets one part or several; ``+`` joins
looks: ``marble+dusk``. Their words stand behind the prompt. The embedded checkpoint knows the words
of every look that ships.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import yaml

import cosmos_transfer
from cosmos_transfer.config import LookSettings
from cosmos_transfer.errors import ConfigError, explain

FOLDER = Path(cosmos_transfer.__file__).parent / "cli" / "configs" / "look"


def look_names() -> tuple[str, ...]:
    """The presets that there are."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def read_look(text: str, prompt: str = "") -> str:
    """A prompt: what is seen, then the words of the presets named, or else the text itself.

    Args:
        text: ``night``, ``marble+dusk``, or a prompt in words.
        prompt: What is seen; may be empty.

    Raises:
        ConfigError: A preset that there is not beside one that there is, or no words at all.
    """
    names = [name.strip() for name in text.split("+")]
    known = [name for name in names if name in look_names()]
    if not known:
        whole = ", ".join(part for part in (prompt.strip(), text.strip()) if part)
        near = get_close_matches(text.strip(), look_names(), n=1, cutoff=0.8)
        if whole and not (near and " " not in text.strip()):
            return whole
    if len(known) != len(names) or not names:
        raise ConfigError(
            explain(
                "look",
                expected=f"a prompt, or presets joined by +: {', '.join(look_names())}",
                got=repr(text),
                do="Write a sentence, or one of these names.",
            )
        )
    settings = LookSettings()
    for name in names:
        content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        for key, value in content.items():
            if key != "defaults":
                setattr(settings, key, value)
    return settings.describe(prompt)
