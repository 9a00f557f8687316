from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from cosmos_transfer.training.optimizer import ADAM_LEARNING_RATE, MuonAdam, orthogonalize
from tests.support.embedded import tiny_networks
from tests.support.numerics import assert_agrees
from tests.support.tiny import randn


@pytest.mark.parametrize("shape", [(8, 8), (16, 48), (48, 16), (1, 9), (9, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_orthogonalized_matrices_have_singular_values_near_one(
    shape: tuple[int, int], size: float
) -> None:
    matrix = size * randn(*shape, seed=sum(shape))
    result = orthogonalize(matrix)
    values = torch.linalg.svdvals(result.double())
    kept = torch.linalg.svdvals(matrix.double()) > 0.05 * torch.linalg.svdvals(matrix.double())[0]
    assert float(values[kept].min()) > 0.6
    assert float(values.max()) < 1.3
    # The singular vectors stay: the product with the matrix is symmetric and positive.
    product = result.double().T @ matrix.double()
    assert_agrees(product, product.T, rms=1e-4)
    assert float(torch.trace(product)) > 0.0


def test_no_gradient_is_no_direction() -> None:
    assert torch.equal(orthogonalize(torch.zeros(3, 5)), torch.zeros(3, 5))


class Model(nn.Module):
    """A matrix inside a block, one outside, and a bias."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(nn.Linear(6, 6))
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def names_of(optimizer: MuonAdam, model: nn.Module) -> dict[bool, set[str]]:
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        group["use_muon"]: {name_of[id(p)] for p in group["params"]}
        for group in optimizer.param_groups
    }


def test_matrices_inside_blocks_go_to_muon_and_the_rest_to_adam() -> None:
    model = Model()
    groups = names_of(MuonAdam([("model", model)]), model)
    assert groups[True] == {"blocks.0.weight"}
    assert groups[False] == {"blocks.0.bias", "head.weight", "head.bias"}


def test_scales_of_norms_inside_blocks_are_no_matrices() -> None:
    networks = tiny_networks()
    modules = {"base": networks.model.transformer}
    optimizer = MuonAdam(modules.items())
    names = names_of(optimizer, networks.model.transformer)
    assert "down_blocks.0.norm_in.scale" in names[False]
    assert "down_blocks.0.conv_in.weight" in names[True]


def test_every_parameter_of_the_networks_is_in_one_group() -> None:
    networks = tiny_networks()
    modules = {"base": networks.model.transformer, "text": networks.text_encoder}
    groups = MuonAdam(modules.items()).param_groups
    ids = [id(parameter) for group in groups for parameter in group["params"]]
    expected = {id(p) for module in modules.values() for p in module.parameters()}
    assert len(ids) == len(set(ids))
    assert set(ids) == expected
    assert [group["use_muon"] for group in groups] == [True, False]


def fit(model: nn.Module, optimizer: MuonAdam, steps: int, *, first: int = 0) -> float:
    loss = torch.zeros(())
    for step in range(first, first + steps):
        x = randn(32, 6, seed=step)
        target = torch.stack([x.sum(dim=1), x[:, 0] - x[:, 1]], dim=1)
        loss = (model(x) - target).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()


def test_it_converges_on_a_small_least_squares_problem() -> None:
    model = Model()
    optimizer = MuonAdam([("model", model)])
    optimizer.set_rate(1.0)
    before = fit(model, optimizer, 1)
    optimizer.set_rate(5.0)
    fit(model, optimizer, 400, first=1)
    optimizer.set_rate(0.2)
    after = fit(model, optimizer, 200, first=401)
    assert after < 0.01 * before


def test_the_rate_scales_both_groups_and_zero_moves_nothing() -> None:
    model = Model()
    optimizer = MuonAdam([("model", model)])
    before = copy.deepcopy(model.state_dict())
    fit(model, optimizer, 2)  # a new optimiser's rate is 0 until set
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    optimizer.set_rate(0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [
        0.5 * group["base_lr"] for group in optimizer.param_groups
    ]


def test_parameters_without_a_gradient_stay() -> None:
    model = Model()
    optimizer = MuonAdam([("model", model)])
    optimizer.set_rate(1.0)
    before = copy.deepcopy(model.state_dict())
    model.head(randn(4, 6, seed=0)).sum().backward()
    optimizer.step()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("blocks")


def test_the_first_step_of_adam_is_the_rate_against_the_sign() -> None:
    model = Model()
    optimizer = MuonAdam([("model", model)])
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
    optimizer.set_rate(1.0)
    before = model.head.bias.detach().clone()
    (3.0 * model.head.bias[0] - 0.2 * model.head.bias[1]).backward()
    optimizer.step()
    step = torch.tensor([-ADAM_LEARNING_RATE, ADAM_LEARNING_RATE])
    assert_agrees(model.head.bias - before, step, rms=1e-4)


def test_its_state_comes_back() -> None:
    model = Model()
    optimizer = MuonAdam([("model", model)])
    optimizer.set_rate(1.0)
    fit(model, optimizer, 3)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    fit(model, optimizer, 3, first=3)

    again = Model()
    optimizer_again = MuonAdam([("model", again)])
    again.load_state_dict(saved[0])
    optimizer_again.load_state_dict(saved[1])
    fit(again, optimizer_again, 3, first=3)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
