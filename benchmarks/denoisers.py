"""Which denoiser learns more on the same compute: the latent U-Net or a small Cosmos transformer.

Both are trained jointly with their four branches by the same loop, on the same clips, with the same
preconditioning, optimiser and seed, for the same number of seconds on one thread; every few minutes
the held-out loss is measured with all controls and with none. Prints the curves and writes them to
``benchmarks/results/``.

    python -m benchmarks.denoisers --data runs/data --minutes 15
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cosmos_transfer.model.branches import new_branch
from cosmos_transfer.model.controlled import ControlledModel
from cosmos_transfer.model.diffusers_compat import CosmosTransformer3DModel
from cosmos_transfer.model.latent_unet import flow_preconditioning
from cosmos_transfer.training.autoencoder import fit_encoder
from cosmos_transfer.training.batches import ClipPool, control_frames, to_video
from cosmos_transfer.training.data import (
    CONTROL_NAMES,
    HELD_OUT_SEEDS,
    class_palette,
    render_shard,
)
from cosmos_transfer.training.loop import Trainer, TrainingConfig
from cosmos_transfer.training.networks import EmbeddedNetworks, new_networks
from cosmos_transfer.training.objective import flow_loss

RESULTS = Path(__file__).parent / "results"
SIGMAS = (0.9, 0.6, 0.3)
TIMESTEP_SCALE = 1000.0
NUM_HELD_OUT = 12


class PreconditionedCosmos(CosmosTransformer3DModel):
    """diffusers' transformer under the U-Net's preconditioning, starting as the same denoiser."""

    def forward(self, hidden_states: Any, timestep: Any, *args: Any, **kwargs: Any) -> Any:
        """Predict the velocity; arguments as in the parent class."""
        factors = flow_preconditioning(timestep / TIMESTEP_SCALE)
        skip, out, scale_in = (factor[:, None, None, None, None] for factor in factors)
        (predicted,) = super().forward(hidden_states * scale_in, timestep, *args, **kwargs)
        return (skip * hidden_states + out * predicted,)


def cosmos_networks(width: int, num_layers: int) -> EmbeddedNetworks:
    """The embedded networks with a small Cosmos transformer in the place of the U-Net."""
    networks = new_networks()
    base = PreconditionedCosmos(
        in_channels=networks.autoencoder.latent_channels + 1,
        out_channels=networks.autoencoder.latent_channels,
        num_attention_heads=width // 32,
        attention_head_dim=32,
        num_layers=num_layers,
        mlp_ratio=4.0,
        text_embed_dim=64,
        adaln_lora_dim=32,
        max_size=(64, 64, 64),
        patch_size=(1, 2, 2),
        rope_scale=(1.0, 1.0, 1.0),
        extra_pos_embed_type=None,
        controlnet_block_every_n=num_layers // 2,
    )
    nn.init.zeros_(base.proj_out.weight)
    branches = {
        name: new_branch(
            base, control_channels=networks.autoencoder.control_channels, input_gain=1.0
        )
        for name in CONTROL_NAMES
    }
    model = ControlledModel(base, branches, timestep_scale=TIMESTEP_SCALE)
    return EmbeddedNetworks(networks.autoencoder, networks.text_encoder, model)


class HeldOut:
    """Clips that nothing is trained on, with fixed noise."""

    def __init__(self, networks: EmbeddedNetworks) -> None:
        shard = render_shard(
            HELD_OUT_SEEDS[:NUM_HELD_OUT], height=64, width=96, num_frames=9, num_looks=1
        )
        palette = class_palette()
        with torch.inference_mode():
            self.clean = networks.autoencoder.encode(to_video(shard.looks[:, 0]))
            self.controls = {}
            for name in CONTROL_NAMES:
                frames = [control_frames(shard, i, name, palette) for i in range(len(shard))]
                self.controls[name] = networks.autoencoder.encode_control(
                    to_video(np.stack(frames))
                )
        self.prompts = [prompts[0] for prompts in shard.prompts]
        self.noise = torch.randn(self.clean.shape, generator=torch.Generator().manual_seed(0))

    @torch.inference_mode()
    def loss(self, networks: EmbeddedNetworks, weight: float) -> float:
        """Mean loss over the sigmas with all controls at ``weight``; 0 leaves them out."""
        controls = self.controls if weight else {}
        patch = networks.model.patch
        num_tokens = self.clean[0, 0].numel() // (patch[0] * patch[1] * patch[2])
        weights = {name: torch.full((NUM_HELD_OUT, num_tokens), weight) for name in controls}
        text = networks.text_encoder.encode(self.prompts)
        losses = [
            flow_loss(
                networks.model,
                self.clean,
                text,
                controls,
                weights,
                sigma=torch.full((NUM_HELD_OUT,), sigma),
                noise=self.noise,
            ).mean()
            for sigma in SIGMAS
        ]
        return float(torch.stack(losses).mean())


def train_and_measure(
    networks: EmbeddedNetworks, data_dir: Path, *, minutes: float, every_s: float, seed: int
) -> list[dict[str, float]]:
    """The held-out losses over seconds of training; measuring is not counted."""
    pool = ClipPool(data_dir)
    pool.refresh()
    fit_encoder(networks.autoencoder, pool)
    held_out = HeldOut(networks)
    config = TrainingConfig(data_dir=data_dir, run_dir=Path("runs/unused"), seed=seed)
    trainer = Trainer(networks, pool, config)
    curve: list[dict[str, float]] = []
    spent, next_measure = 0.0, every_s
    while spent < 60.0 * minutes:
        trainer.optimizer.set_rate(min(1.0, (trainer.num_steps + 1) / config.warmup_steps))
        started = time.process_time()
        trainer.step()
        spent += time.process_time() - started
        if spent >= next_measure:
            next_measure += every_s
            trained = {name: value.clone() for name, value in networks.state_dict().items()}
            networks.load_state_dict(trainer.average.weights)
            entry = {
                "cpu_s": round(spent, 1),
                "clips": trainer.num_steps * config.batch_size,
                "loss_all": round(held_out.loss(networks, 0.25), 4),
                "loss_none": round(held_out.loss(networks, 0.0), 4),
            }
            networks.load_state_dict(trained)
            print(entry, flush=True)
            curve.append(entry)
    return curve


def main() -> None:
    """Train both, print and keep the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("runs/data"))
    parser.add_argument("--minutes", type=float, default=15.0, help="CPU minutes for each")
    parser.add_argument("--every", type=float, default=120.0, help="seconds between measurements")
    parser.add_argument("--only", choices=("unet", "cosmos"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    makers = {"unet": new_networks, "cosmos": lambda: cosmos_networks(width=160, num_layers=6)}
    curves = {}
    for name, make in makers.items():
        if arguments.only not in (None, name):
            continue
        torch.manual_seed(0)
        networks = make()
        num_parameters = sum(parameter.numel() for parameter in networks.model.parameters())
        print(f"{name}: {num_parameters / 1e6:.2f} M parameters with branches", flush=True)
        curves[name] = {
            "num_parameters": num_parameters,
            "curve": train_and_measure(
                networks, arguments.data, minutes=arguments.minutes, every_s=arguments.every, seed=0
            ),
        }
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"denoisers_{name}.json"
        path.write_text(json.dumps(curves[name], indent=2) + "\n")
        print(path)


if __name__ == "__main__":
    main()
