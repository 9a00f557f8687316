from __future__ import annotations

import pytest
import torch
from torch import nn

from cosmos_transfer.errors import ConfigError
from cosmos_transfer.offload.prune import measured_inputs, prunable, prune
from tests.support import tiny


def zeros(weight):
    return float((weight == 0).double().mean())


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.5, 1.0])
def test_every_matrix_loses_its_share_and_nothing_else_changes(sparsity):
    network = tiny.transfer2_5_transformer()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    report = prune(network, sparsity=sparsity)
    touched = prunable(network)
    assert 0 < len(touched) < len(before)
    for name, value in network.state_dict().items():
        if name in touched:
            assert zeros(value) == pytest.approx(sparsity, abs=0.01), name
            changed = value != before[name]
            assert (value[changed] == 0).all()
        else:
            assert torch.equal(value, before[name]), name
    assert report.num_zeros == sum(int((m.weight == 0).sum()) for m in touched.values())


def test_what_is_sensitive_stays_dense():
    names = " ".join(prunable(tiny.transfer2_5_transformer()))
    assert "attn1.to_q" in names
    assert "ff.net.0.proj" in names
    for part in ("norm", "patch_embed", "time_embed", "proj_out", "crossattn_proj"):
        assert part not in names, part


def test_magnitude_drops_the_smallest():
    layer = nn.Sequential(nn.Linear(4, 1, bias=False))
    layer[0].weight.data = torch.tensor([[0.1, -3.0, 0.2, 5.0]])
    report = prune(layer, sparsity=0.5)
    assert layer[0].weight.tolist() == [[0.0, -3.0, 0.0, 5.0]]
    assert report.relative_rms == pytest.approx((0.05 / 34.05) ** 0.5)


def test_wanda_weighs_by_the_inputs():
    layer = nn.Sequential(nn.Linear(4, 2, bias=False))
    weight = torch.tensor([[1.0, 1.1, 1.2, 1.3], [4.0, 3.0, 2.0, 1.0]])
    layer[0].weight.data = weight.clone()
    with measured_inputs(layer) as norms:
        layer(torch.tensor([[10.0, 0.1, 0.1, 0.2]]))
    assert norms["0.weight"].tolist() == pytest.approx([10.0, 0.1, 0.1, 0.2])
    prune(layer, sparsity=0.5, method="wanda", input_norms=norms)
    # Each row loses its own two smallest products.
    assert layer[0].weight.tolist() == [[1.0, 0.0, 0.0, pytest.approx(1.3)], [4.0, 3.0, 0.0, 0.0]]


@torch.no_grad()
def test_wanda_hurts_less_than_magnitude_where_inputs_differ():
    torch.manual_seed(0)
    scale = torch.logspace(-2, 1, 64)
    inputs, layer = torch.randn(512, 64) * scale, nn.Sequential(nn.Linear(64, 32, bias=False))
    want, errors = layer(inputs), {}
    for method in ("magnitude", "wanda"):
        copy = nn.Sequential(nn.Linear(64, 32, bias=False))
        copy.load_state_dict(layer.state_dict())
        with measured_inputs(copy) as norms:
            copy(inputs)
        prune(copy, sparsity=0.5, method=method, input_norms=norms)
        errors[method] = float((copy(inputs) - want).square().mean())
    assert errors["wanda"] < 0.5 * errors["magnitude"]


def test_convolutions_and_their_groups_are_measured_by_channel():
    network = nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.Conv3d(8, 2, 1))
    with measured_inputs(network) as norms:
        network[1](network[0](torch.randn(1, 4, 6, 6))[:, :, None])
    assert {name: len(value) for name, value in norms.items()} == {"0.weight": 4, "1.weight": 8}
    prune(network, sparsity=0.5, method="wanda", input_norms=norms)
    assert zeros(network[0].weight) == 0.5


def test_wanda_without_inputs_is_refused():
    with pytest.raises(ConfigError, match=r"the inputs of 0\.weight, measured"):
        prune(nn.Sequential(nn.Linear(2, 2)), sparsity=0.5, method="wanda")


@pytest.mark.parametrize(("method", "sparsity"), [("random", 0.5), ("magnitude", 1.5)])
def test_what_means_nothing_is_refused(method, sparsity):
    with pytest.raises(ConfigError, match="prune: expected a"):
        prune(nn.Sequential(nn.Linear(2, 2)), sparsity=sparsity, method=method)
