"""Importing our packages, asking for help and validating load nothing heavy."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "diffusers", "transformers", "hydra", "omegaconf", "cv2", "av", "scipy", "PIL")
GUESTS = ("gradio", "triton", "tinycudann", "ray", "torchvision")


def loaded_by(statement: str) -> set[str]:
    code = (
        f"{statement}\nimport sys; print(' '.join(sorted(m for m in sys.modules if '.' not in m)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "statement",
    [
        "import cosmos_transfer",
        "import ngpc",
        "import cosmos_transfer.config, cosmos_transfer.errors, cosmos_transfer.shapes",
        "import cosmos_transfer.cli.main",
        "import cosmos_transfer.cli.generate, cosmos_transfer.cli.validate",
        "import cosmos_transfer.cli.show, cosmos_transfer.cli.evaluate, cosmos_transfer.cli.demo",
        "import ngpc.cli.main",
    ],
)
def test_an_import_loads_nothing_heavy(statement: str) -> None:
    assert loaded_by(statement).isdisjoint({*HEAVY, *GUESTS})


@pytest.mark.parametrize(
    "statement",
    [
        "import cosmos_transfer.inputs.request, cosmos_transfer.inputs.validate",
        "import cosmos_transfer.weights.maps, cosmos_transfer.outputs.sheet",
        "import cosmos_transfer.long_video.plan",
    ],
)
def test_what_validation_needs_loads_no_torch(statement: str) -> None:
    assert loaded_by(statement).isdisjoint({"torch", "diffusers", "transformers", *GUESTS})


@pytest.mark.parametrize(
    "statement",
    ["from cosmos_transfer import TransferPipeline", "import cosmos_transfer.model.checkpoint"],
)
def test_the_pipeline_loads_no_guest(statement: str) -> None:
    assert loaded_by(statement).isdisjoint({*GUESTS, "hydra", "omegaconf"})


def test_public_names_resolve() -> None:
    import cosmos_transfer

    for name in cosmos_transfer.__all__:
        assert getattr(cosmos_transfer, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        cosmos_transfer.no_such_name  # noqa: B018


@pytest.mark.parametrize(
    "command", [[], ["generate"], ["validate"], ["show"], ["evaluate"], ["demo"]]
)
def test_help_answers_in_under_a_second(command: list[str]) -> None:
    argv = [sys.executable, "-m", "cosmos_transfer", *command, "--help"]
    seconds = []
    for _ in range(3):  # the best of three: the machine may be busy
        started = time.perf_counter()
        subprocess.run(argv, capture_output=True, check=True)
        seconds.append(time.perf_counter() - started)
        if seconds[-1] < 1.0:
            break
    assert min(seconds) < 1.0
