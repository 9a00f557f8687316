"""The table of backends: never another one than asked for, and always a reason."""

from __future__ import annotations

import importlib
import inspect
import logging
from pathlib import Path

import pytest
import torch

from ngpc.backends import registry
from ngpc.backends.registry import BACKENDS, OPS, Backend, choose_backend, find_backend
from ngpc.cli.backends import why_not
from ngpc.cli.main import main
from ngpc.config import GridConfig
from ngpc.errors import BackendUnavailableError, ConfigError, ShapeError
from ngpc.ops import apply_mlp, encode_frequency, encode_grid

ELSEWHERE = Backend("elsewhere", "ngpc.backends.elsewhere", "", device_types=("cuda",))
NEEDY = Backend("needy", "ngpc.backends.needy", "", requires=("no_such_module_as_this",))


@pytest.fixture
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "library_path", lambda: Path("kernels.so"))
    registry._announce.cache_clear()


@pytest.fixture
def _not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "library_path", lambda: None)
    registry._announce.cache_clear()


def test_every_backend_exports_the_ops_of_the_definition() -> None:
    definition = importlib.import_module("ngpc.backends.reference")
    for backend in BACKENDS:
        if backend.name == "triton":
            pytest.importorskip("triton", reason="needs triton, an extra: pip install '.[triton]'")
        package = importlib.import_module(backend.package)
        for op in OPS:
            assert inspect.signature(getattr(package, op)) == inspect.signature(
                getattr(definition, op)
            )


def test_the_definition_is_last_and_runs_everywhere() -> None:
    assert BACKENDS[-1].name == "reference"
    assert BACKENDS[-1].why_unavailable("cpu") is None
    assert BACKENDS[-1].why_unavailable("cuda") is None


@pytest.mark.usefixtures("_not_compiled")
def test_named_backend_is_never_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BACKENDS", (ELSEWHERE, NEEDY, *BACKENDS))
    assert choose_backend("auto", "cpu").name == "reference"
    with pytest.raises(
        BackendUnavailableError,
        match="backend 'elsewhere' cannot run on cpu: runs on cuda, not cpu",
    ):
        choose_backend("elsewhere", "cpu")
    with pytest.raises(
        BackendUnavailableError, match=r"'needy' .*needs no_such_module_as_this, not installed"
    ):
        choose_backend("needy", "cpu")


def test_auto_without_any_backend_names_all_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BACKENDS", (ELSEWHERE, NEEDY))
    with pytest.raises(BackendUnavailableError, match=r"'elsewhere' .*; backend 'needy' "):
        choose_backend("auto", "cpu")


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"one of auto, .*reference, got 'numba'"):
        find_backend("numba")


@pytest.mark.usefixtures("_compiled")
def test_auto_says_what_it_chose_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ngpc"):
        choose_backend("auto", "cpu")
        choose_backend("auto", "cpu")
    assert [record.getMessage() for record in caplog.records] == ["backend 'auto' on cpu is cpu"]


@pytest.mark.usefixtures("_not_compiled")
def test_auto_without_compiled_kernels_warns_once_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="ngpc"):
        assert choose_backend("auto", "cpu").name == "reference"
        assert choose_backend("auto", "cpu").name == "reference"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(
        "backend 'auto' on cpu is reference: 'cpu' needs kernels that an installation with a C++"
    )
    with pytest.raises(BackendUnavailableError, match=r"'cpu' cannot run on cpu: needs kernels"):
        choose_backend("cpu", "cpu")


def test_the_listing_gives_a_reason_for_every_no(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["backends"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("reference: "))
    assert lines[first + 1].split() == ["cpu", "yes"]
    no = ["cuda", "no, torch finds no CUDA device on this machine"]
    assert lines[first + 2].split(maxsplit=1) == no
    first = next(i for i, line in enumerate(lines) if line.startswith("triton: "))
    assert lines[first + 1].split(maxsplit=1) == ["cpu", "no, runs on cuda, not cpu"]
    assert why_not(ELSEWHERE, "cpu") == "runs on cuda, not cpu"


def test_ops_name_what_does_not_fit() -> None:
    layout = GridConfig(num_levels=1).layout(3)
    table = torch.zeros(layout.num_entries, 2)
    with pytest.raises(ShapeError, match=r"shape \(points, 3\), got \(5, 2\)"):
        encode_grid(torch.rand(5, 2), table, layout=layout)
    with pytest.raises(ShapeError, match=r"shape \(4096, 2\), got \(4095, 2\)"):
        encode_grid(torch.rand(5, 3), table[1:], layout=layout)
    with pytest.raises(ShapeError, match=r"got \(5,\)"):
        encode_frequency(torch.rand(5), num_frequencies=2)
    with pytest.raises(ShapeError, match=r"layer 1: expected a matrix of 4 columns, got .*\(2, 5"):
        apply_mlp(torch.rand(5, 3), [torch.rand(4, 3), torch.rand(2, 5)])
    with pytest.raises(ShapeError, match="at least one matrix"):
        apply_mlp(torch.rand(5, 3), [])
