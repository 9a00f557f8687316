from __future__ import annotations

import torch
from torch import nn

from cosmos_transfer.training.ema import MovingAverage
from tests.support.numerics import assert_agrees


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))


def test_it_starts_as_the_weights_and_is_no_view_of_them() -> None:
    model = Model()
    average = MovingAverage(model, 0.9)
    with torch.no_grad():
        model.weight.fill_(5.0)
    assert average.weights["weight"].tolist() == [0.0, 0.0, 0.0]


def test_it_averages_over_fewer_steps_at_the_start() -> None:
    model = Model()
    average = MovingAverage(model, 0.99)
    with torch.no_grad():
        model.weight.fill_(1.0)
    expected = 0.0
    for step in range(1, 6):
        average.update(model)
        decay = min(0.99, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay)
        assert_agrees(average.weights["weight"], torch.full((3,), expected), rms=1e-6)
    assert expected > 0.95  # 0.99 from the start would be at 0.05


def test_after_many_steps_the_decay_is_the_one_asked_for() -> None:
    model = Model()
    average = MovingAverage(model, 0.5)
    average.num_updates = 1_000
    with torch.no_grad():
        model.weight.fill_(1.0)
    average.update(model)
    assert average.weights["weight"].tolist() == [0.5, 0.5, 0.5]


def test_whole_numbers_are_copied_and_frozen_weights_stay_to_the_bit() -> None:
    model = Model()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([0.1, 1 / 3, 1e-7]))
    average = MovingAverage(model, 0.998)
    for step in range(50):
        model.count += 1
        average.update(model)
        assert int(average.weights["count"]) == step + 1
    assert torch.equal(average.weights["weight"], model.weight)
