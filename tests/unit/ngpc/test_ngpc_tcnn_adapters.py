"""The tinycudann adapters against a stand-in with its interface: what is packed, and where.

The stand-in is our own module of the same layout, so it says nothing about tinycudann's kernels;
`scripts/gpu_check.sh` compares those where the package is installed.
"""

from __future__ import annotations

import itertools
import sys
import types

import pytest
import torch

import ngpc
from ngpc.backends import reference
from ngpc.backends.tcnn import adapters
from ngpc.config import Activation, GridConfig, Interpolation
from ngpc.errors import ConfigError


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("tinycudann")
    package.Encoding = lambda *a: ngpc.Encoding(*a, backend="reference")
    package.Network = lambda *a: ngpc.Network(*a, backend="reference")
    monkeypatch.setitem(sys.modules, "tinycudann", package)
    adapters._encoding.cache_clear()
    adapters._network.cache_clear()


def check(run, *inputs: torch.Tensor) -> None:
    """Values, first and second derivatives agree with the definition."""
    results = []
    for package in (adapters, reference):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        outputs = run(package, *leaves)
        first = torch.autograd.grad(outputs.sum(), leaves, retain_graph=True)
        (slope,) = torch.autograd.grad(outputs.sum(), leaves[0], create_graph=True)
        second = torch.autograd.grad((slope**2).sum(), leaves, allow_unused=True)
        results.append([outputs, *first, slope, *second])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_grid_is_described_by_its_layout() -> None:
    config = GridConfig(num_levels=4, log2_table_size=7, base_resolution=5, per_level_scale=1.38)
    layout = config.layout(3)
    table = torch.randn(layout.num_entries, 2)
    check(
        lambda package, x, t: package.encode_grid(
            x, t, layout=layout, interpolation=Interpolation.SMOOTHSTEP
        ),
        torch.rand(9, 3),
        table,
    )


def test_frequencies_have_no_parameters() -> None:
    check(lambda package, x: package.encode_frequency(x, num_frequencies=3), torch.rand(5, 2))


@pytest.mark.parametrize("widths", [(16, 32, 32, 3), (32, 20, 16), (16, 5)])
def test_matrices_are_padded_to_16_outputs(widths: tuple[int, ...]) -> None:
    weights = [torch.randn(o, i) / 4 for i, o in itertools.pairwise(widths)]
    check(
        lambda package, x, *matrices: package.apply_mlp(
            x, matrices, activation=Activation.SOFTPLUS, output_activation=Activation.SIGMOID
        ),
        torch.rand(7, widths[0]),
        *weights,
    )


def test_what_tinycudann_cannot_hold_is_refused() -> None:
    weights = [torch.zeros(32, 16), torch.zeros(64, 32), torch.zeros(3, 64)]
    with pytest.raises(ConfigError, match=r"one width, inputs padded to 16, got widths \[32, 64\]"):
        adapters.apply_mlp(
            torch.zeros(1, 16), weights, activation=Activation.RELU,
            output_activation=Activation.NONE,
        )  # fmt: skip
