from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cosmos_transfer.diffusion.phases import Phase, Phased, plan_phases


def test_controls_that_always_act_are_one_phase() -> None:
    assert plan_phases((None, (0.0, 1.0)), 12) == (Phase(first=0, last=11, factors=(1.0, 1.0)),)
    assert plan_phases((), 3) == (Phase(first=0, last=2, factors=()),)


def test_phases_change_where_a_control_begins_or_ends() -> None:
    phases = plan_phases(((0.0, 0.5), None, (0.25, 0.75)), 8)
    assert [(each.first, each.last, each.factors) for each in phases] == [
        (0, 1, (True, True, False)),
        (2, 3, (True, True, True)),
        (4, 5, (False, True, True)),
        (6, 7, (False, True, False)),
    ]


def test_a_weight_may_fade_over_the_steps_of_its_control() -> None:
    phases = plan_phases((None, (0.5, 1.0), None), 4, ((1.0, 0.25), (0.0, 1.0), None))
    assert [(each.first, each.last) for each in phases] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [each.factors for each in phases] == [
        (1.0, 0.0, 1.0),
        (0.75, 0.0, 1.0),
        (0.5, 0.0, 1.0),
        (0.25, 1.0, 1.0),
    ]
    assert not any(each.is_plain for each in phases)
    (only,) = plan_phases((None,), 4, ((1.0, 1.0),))
    assert only.is_plain
    assert plan_phases((None,), 1, ((0.5, 0.0),))[0].factors == (0.5,)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7, 12, 50])
def test_every_step_lies_in_one_phase(num_steps: int) -> None:
    phases = plan_phases(((0.1, 0.6), (0.3333, 1.0)), num_steps)
    covered = [step for each in phases for step in range(each.first, each.last + 1)]
    assert covered == list(range(num_steps))


def test_a_third_may_be_written_in_decimals() -> None:
    assert [each.last for each in plan_phases(((0.0, 0.3333),), 12)] == [3, 11]
    assert [each.last for each in plan_phases(((0.0, 0.667),), 3)] == [1, 2]


def test_sigma_decides_whose_turn_it_is() -> None:
    def constant(value: float) -> object:
        return lambda latents, sigma: torch.full_like(latents, value)

    phased = Phased(((0.6, constant(1.0)), (0.2, constant(2.0))))  # type: ignore[arg-type]
    latents = torch.zeros(1, 1, 1, 1, 1)

    def at(sigma: float) -> Tensor:
        return phased(latents, sigma).flatten()

    assert [float(at(sigma)) for sigma in (1.0, 0.6, 0.59, 0.2, 0.0)] == [1.0, 1.0, 2.0, 2.0, 2.0]
