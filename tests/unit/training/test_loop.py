from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cosmos_transfer.errors import CheckpointError, ConfigError
from cosmos_transfer.training.autoencoder import fit_encoder
from cosmos_transfer.training.batches import ClipPool
from cosmos_transfer.training.loop import Trainer, TrainingConfig
from cosmos_transfer.training.networks import EmbeddedNetworks, run_networks
from tests.support.embedded import tiny_networks
from tests.support.shards import write_shards


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    pool = ClipPool(write_shards(tmp_path_factory.mktemp("shards")))
    pool.refresh()
    return pool


@pytest.fixture(scope="module")
def encoder(pool: ClipPool) -> dict[str, Tensor]:
    networks = tiny_networks()
    fit_encoder(networks.autoencoder, pool)
    return networks.autoencoder.state_dict()


def config(run_dir: Path, **changes: Any) -> TrainingConfig:
    given = {"batch_size": 2, "duration_s": 0.0, "warmup_steps": 2} | changes
    return TrainingConfig(data_dir=Path("data"), run_dir=run_dir, **given)


def trainer(
    pool: ClipPool, encoder: dict[str, Tensor], settings: TrainingConfig, *, seed: int | None = None
) -> Trainer:
    networks = tiny_networks(seed=seed)
    networks.autoencoder.load_state_dict(encoder)
    made = Trainer(networks, pool, settings)
    made.optimizer.set_rate(1.0)
    return made


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def changed(module: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, value in module.state_dict().items() if not value.equal(before[name])}


def test_a_resumed_run_is_the_uninterrupted_run_to_the_bit(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path
) -> None:
    whole = trainer(pool, encoder, config(tmp_path / "whole"))
    losses = [whole.step() for _ in range(8)]

    first = trainer(pool, encoder, config(tmp_path / "parts"))
    in_parts = [first.step() for _ in range(3)]
    first.save()
    second = trainer(pool, encoder, config(tmp_path / "parts"), seed=9)
    assert second.resume()
    second.optimizer.set_rate(1.0)
    in_parts += [second.step() for _ in range(5)]

    assert in_parts == losses
    assert second.num_steps == whole.num_steps == 8
    assert changed(second.networks, copied(whole.networks)) == set()
    for name, value in whole.average.weights.items():
        assert torch.equal(value, second.average.weights[name]), name


def test_another_seed_is_another_run(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path
) -> None:
    one, other = (trainer(pool, encoder, config(tmp_path, seed=seed)).step() for seed in (0, 1))
    assert one != other


def test_a_new_folder_is_nothing_to_resume(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path
) -> None:
    assert not trainer(pool, encoder, config(tmp_path)).resume()


PARTS = ("autoencoder", "text_encoder", "model.transformer", "model.branches")


def part_of(name: str) -> str:
    return next(part for part in PARTS if name.startswith(part))


@pytest.mark.parametrize(
    ("mode", "branch", "trained"),
    [
        ("joint", None, {"model.transformer", "model.branches"}),
        ("base", None, {"model.transformer"}),
        ("branch", "seg", {"model.branches"}),
    ],
)
def test_each_mode_trains_its_parts_and_no_other(
    pool: ClipPool,
    encoder: dict[str, Tensor],
    tmp_path: Path,
    mode: str,
    branch: str | None,
    trained: set[str],
) -> None:
    made = trainer(pool, encoder, config(tmp_path, mode=mode, branch=branch), seed=4)
    before = copied(made.networks)
    average_before = {name: value.clone() for name, value in made.average.weights.items()}
    for _ in range(6):
        made.step()
    moved = changed(made.networks, before)
    assert {part_of(name) for name in moved} == trained
    if branch is not None:
        assert all(name.startswith(f"model.branches.{branch}.") for name in moved)
    averaged = {
        name
        for name, value in made.average.weights.items()
        if not value.equal(average_before[name])
    }
    assert averaged == moved
    for name, parameter in made.networks.named_parameters():
        if part_of(name) in trained and (branch is None or f".{branch}." in name):
            assert name in moved, f"{name} was to be trained"
        else:
            assert not parameter.requires_grad


def test_a_branch_starts_blind_and_learns(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path
) -> None:
    # Its outputs are zero at first; one step opens them, the next reaches what stands before.
    networks = tiny_networks(seed=4)
    networks.autoencoder.load_state_dict(encoder)
    networks.model.branches["edge"].load_state_dict(
        tiny_networks().model.branches["edge"].state_dict()
    )
    made = Trainer(networks, pool, config(tmp_path, mode="branch", branch="edge"))
    made.optimizer.set_rate(1.0)
    branch = networks.model.branches["edge"]
    before = copied(branch)
    made.step()
    assert {name.split(".")[0] for name in changed(branch, before)} >= {"outputs"}
    made.step()
    made.step()
    assert "read.weight" in changed(branch, before)


def test_the_loss_of_one_step_falls_when_that_step_is_taken_again(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path
) -> None:
    made = trainer(pool, encoder, config(tmp_path))
    losses = []
    for _ in range(20):
        made.num_steps = 3
        losses.append(made.step())
    assert losses[-1] < 0.9 * losses[0]


def test_a_run_saves_logs_and_cools_down(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path
) -> None:
    settings = config(tmp_path / "run", duration_s=1.0, cool_down=1.0, save_every_s=0.2)
    made = trainer(pool, encoder, settings)
    made.run()
    assert {each.name for each in (tmp_path / "run").iterdir()} == {
        "state.pt",
        "metrics.jsonl",
        "settings.jsonl",
    }
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == made.num_steps
    # Two clips of one latent frame a step, or one clip of more.
    assert made.num_steps <= lines[-1]["clips"] == made.num_clips <= 2 * made.num_steps
    assert lines[-1]["scenes"] == 6
    assert 0.0 < lines[-1]["loss"] < 10.0
    (start,) = (tmp_path / "run/settings.jsonl").read_text().splitlines()
    assert json.loads(start)["seed"] == 0
    assert 1.0 <= made.elapsed_s < 30.0
    assert made.optimizer.param_groups[0]["lr"] < made.optimizer.param_groups[0]["base_lr"]

    again = trainer(pool, encoder, settings)
    assert again.resume()
    assert (again.num_steps, again.elapsed_s) == (made.num_steps, made.elapsed_s)
    again.run()
    assert again.elapsed_s >= made.elapsed_s + 1.0


def test_a_run_of_another_mode_is_not_taken_up(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path
) -> None:
    trainer(pool, encoder, config(tmp_path, mode="branch", branch="edge")).save()
    for mode, branch in (("joint", None), ("base", None), ("branch", "depth")):
        made = trainer(pool, encoder, config(tmp_path, mode=mode, branch=branch))
        with pytest.raises(CheckpointError, match="Give the new run a folder of its own"):
            made.resume()


def test_a_state_saved_before_modes_were_kept_is_taken_up(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path
) -> None:
    made = trainer(pool, encoder, config(tmp_path))
    made.step()
    made.save()
    state = torch.load(made.state_path, weights_only=True)
    del state["trained"]
    torch.save(state, made.state_path)
    assert trainer(pool, encoder, config(tmp_path)).resume()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"text"], ids=["empty", "cut", "text"])
def test_a_damaged_state_is_named(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "state.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"state\.pt") as caught:
        trainer(pool, encoder, config(tmp_path)).resume()
    assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError, match=r"state\.pt"):
        run_networks(tmp_path, averaged=True, networks=tiny_networks())


def test_networks_of_a_run_are_those_it_goes_on_with_or_their_average(
    pool: ClipPool, encoder: dict[str, Tensor], tmp_path: Path
) -> None:
    made = trainer(pool, encoder, config(tmp_path))
    for _ in range(3):
        made.step()
    made.save()

    def loaded(averaged: bool) -> EmbeddedNetworks:
        return run_networks(tmp_path, averaged=averaged, networks=tiny_networks())

    assert changed(loaded(False), copied(made.networks)) == set()
    assert changed(loaded(True), made.average.weights) == set()
    assert changed(loaded(True), copied(made.networks)) != set()
    with pytest.raises(CheckpointError, match="these networks"):
        run_networks(tmp_path, averaged=True)  # of the shipped size
    with pytest.raises(CheckpointError, match="Train first"):
        run_networks(tmp_path / "nowhere", averaged=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mode": "everything"}, "joint, base, branch"),
        ({"mode": "branch"}, "the name of a control"),
        ({"mode": "branch", "branch": "lidar"}, "'lidar'"),
        ({"mode": "base", "branch": "edge"}, "no name of a branch"),
        ({"mode": "joint", "branch": "lidar"}, "no name of a branch"),
        ({"batch_size": 0}, "at least 1"),
        ({"duration_s": -1.0}, "at least 0"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"rate": -0.5}, "rate"),
        ({"cool_down": 1.5}, "from 0 to 1"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_run_are_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        config(tmp_path, **changes)
