"""What every test shares: one thread, fixed seeds, poisoned memory, and no silent skips."""

from __future__ import annotations

import os

# Before anything imports torch or a kernel: threads are counted when the libraries load, and Triton
# decides between compiling and interpreting when a kernel is defined.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HYDRA_FULL_ERROR", "0")

import random
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# The reasons a test may have not to run; with CI=true, any other skip fails the run.
EXPECTED_SKIPS = ("needs ../shared", "needs a CUDA device")


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """Start every test from the same random state."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  for third-party code that draws from the global state
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _poisoned_memory() -> None:
    """Fill uninitialised tensors with NaN, so that reading one shows."""
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.fixture
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture
def shared_media() -> Path:
    """Real clips beside the checkout; skips where they are not."""
    folder = REPOSITORY.parent / "shared" / "media"
    if not folder.is_dir():
        pytest.skip("needs ../shared/media, which is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random checkpoint with all four controls: 64x96, chunks of 9 frames."""
    from tests.support.tiny_checkpoint import write_tiny_checkpoint

    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Each device a test runs on."""
    if request.param == "cuda":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
    return str(request.param)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI, turn a skip nobody expects into a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None or exitstatus != 0:
        return
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not reason.removeprefix("Skipped: ").startswith(EXPECTED_SKIPS):
            reporter.write_line(f"unexpected skip in {report.nodeid}: {reason}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
