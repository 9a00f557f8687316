"""What a published checkpoint's licence asks for: a check of the prompt and of the frames.

NVIDIA's checkpoints are licensed on the condition that a guardrail stays in place. It is on for
them unless it is switched off by name, which the record then says; the embedded model was trained
on drawn scenes and has none. A guardrail that should be on and cannot be is an error before
anything is generated: nothing here answers "safe" because it could not look.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from cosmos_transfer.errors import ConfigError, GuardrailError, explain

MODES = ("auto", "on", "off")
PACKAGE = "cosmos_guardrail"


@runtime_checkable
class Guardrail(Protocol):
    """Looks at what goes in and what comes out."""

    @property
    def name(self) -> str:
        """What the record calls it."""
        ...

    def check_prompt(self, prompt: str) -> None:
        """Return if the prompt may be used.

        Raises:
            GuardrailError: It may not; or it could not be decided.
        """
        ...

    def check_frames(self, frames: UInt8[np.ndarray, "f h w 3"]) -> UInt8[np.ndarray, "f h w 3"]:
        """Return the frames that may be shown, of the same size, faces blurred where it must be.

        Raises:
            GuardrailError: They may not be shown; or it could not be decided.
        """
        ...


def choose_guardrail(mode: str, *, is_published: bool, device: str) -> Guardrail | None:
    """The guardrail a checkpoint runs with.

    Args:
        mode: ``auto``: on for published checkpoints, none for the embedded one; ``on``; ``off``.
        is_published: Whether the weights are NVIDIA's.
        device: Where its networks run.

    Raises:
        GuardrailError: It is to be on and cannot be loaded.
    """
    if mode not in MODES:
        raise ConfigError(
            explain(
                "model.guardrail",
                expected="one of " + ", ".join(MODES),
                got=repr(mode),
                do="auto is right for most.",
            )
        )
    if mode == "off" or (mode == "auto" and not is_published):
        return None
    return load_cosmos_guardrail(device)


def load_cosmos_guardrail(device: str) -> Guardrail:
    """The guardrail of the ``cosmos-guardrail`` package.

    Raises:
        GuardrailError: The package, or the weights it fetches, are not there.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise GuardrailError(
            explain(
                "guardrail",
                expected="the package cosmos-guardrail, as the checkpoint's licence asks",
                got="none",
                do="Run pip install 'cosmos-transfer[guardrail]', or set model.guardrail=off if "
                "your licence allows it; the record will say so.",
            )
        )
    try:
        checker = importlib.import_module(PACKAGE).CosmosSafetyChecker()
        checker.to(device)
    except Exception as error:  # whatever it is, the guardrail is not there
        raise GuardrailError(
            explain(
                "guardrail",
                expected="its weights, downloaded before or on the hub",
                got=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
                do="Log in with `hf auth login` and accept their licences.",
            )
        ) from error
    return CosmosGuardrail(checker)


@dataclass(frozen=True, slots=True)
class CosmosGuardrail:
    """NVIDIA's checker, closed where it would stand open: an error is a refusal."""

    checker: Any
    name: str = "cosmos-guardrail"

    def check_prompt(self, prompt: str) -> None:
        """Pass the prompt, or raise."""
        if not self._asked("prompt", lambda: self.checker.check_text_safety(prompt)):
            raise GuardrailError(
                explain(
                    "guardrail",
                    expected="a prompt it lets pass",
                    got=f"{prompt[:60]!r}",
                    do="Word it differently.",
                )
            )

    def check_frames(self, frames: UInt8[np.ndarray, "f h w 3"]) -> UInt8[np.ndarray, "f h w 3"]:
        """The frames with faces blurred, or raise."""
        shown = self._asked("frames", lambda: self.checker.check_video_safety(frames))
        if shown is None:
            raise GuardrailError(
                explain(
                    "guardrail",
                    expected="frames it lets pass",
                    got="frames it does not",
                    do="Change the prompt or the clip.",
                )
            )
        checked = np.asarray(shown)
        if checked.shape != frames.shape or checked.dtype != np.uint8:
            raise GuardrailError(
                explain(
                    "guardrail",
                    expected=f"frames of shape {frames.shape} uint8 back",
                    got=f"{checked.shape} {checked.dtype}",
                    do="Use the version of cosmos-guardrail that pyproject.toml names.",
                )
            )
        return checked

    def _asked(self, what: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:  # it could not look: that is no "safe"
            raise GuardrailError(
                explain(
                    "guardrail",
                    expected=f"an answer about the {what}",
                    got=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
                    do="Nothing was shown. Mend the guardrail, then try again.",
                )
            ) from error
