"""The base, its control branches and their fusion, behind a denoiser.

Conventions
    Samplers speak rectified flow: ``noisy = (1 - sigma) * clean + sigma * noise``. Networks trained
    on it predict the velocity ``noise - clean``; the denoiser returns ``noisy - sigma * velocity``.
    What their time embedding receives is ``sigma * timestep_scale``: diffusers' Cosmos 2.5 pipeline
    feeds sigma itself (a scale of 1). Networks of another objective (Cosmos-Transfer1's is EDM) are
    read through :mod:`cosmos_transfer.model.parametrisation`; samplers never notice. The time
    embedding is fed float32 whatever the networks' dtype.
    Tokens run time-slowest over the latent grid.
    The networks are diffusers' Cosmos classes or any with the same calls and config entries; they
    are typed as plain modules, so that importing this file loads no diffusers.
    Nothing here draws noise, moves tensors between devices or changes the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from cosmos_transfer.errors import ShapeError, explain
from cosmos_transfer.model.branches import check_branch, project_text_once
from cosmos_transfer.model.parametrisation import Edm, Flow
from cosmos_transfer.weights.fusion import fuse_residuals

RunBranches = Callable[[Mapping[str, Callable[[], list[Tensor]]]], Iterable[list[Tensor]]]


class ControlledModel(nn.Module):
    """A base transformer and one branch per control.

    Args:
        transformer: The base; reads latents and a condition mask.
        branches: Control name -> branch; may be empty.
        timestep_scale: What the networks call time is sigma times this.
        clean_sigma: The sigma told for inherited clean frames; None tells them the same as the
            frames in the making.
        sigma_data: Set for networks trained as EDM denoisers: the standard deviation of their data.
    """

    transformer: Any
    run_branches: RunBranches
    """Runs the branches given and says what each adds, in order; where several processes share the
    work, ``parallel`` sets another."""
    local_tokens: Callable[[Tensor], Tensor]
    """Of the weights of all tokens (b n), those of the tokens that this process works on."""

    def __init__(
        self,
        transformer: nn.Module,
        branches: Mapping[str, nn.Module],
        *,
        timestep_scale: float = 1.0,
        clean_sigma: float | None = None,
        sigma_data: float | None = None,
    ) -> None:
        super().__init__()
        for name, branch in branches.items():
            check_branch(name, transformer, branch)
        self._projects_once = project_text_once(transformer, branches)
        self.transformer = transformer
        self.branches = nn.ModuleDict(dict(branches))
        self.run_branches = _run_in_order
        self.local_tokens = _all_tokens
        self.timestep_scale = timestep_scale
        self.clean_sigma = clean_sigma
        self.parametrisation: Flow | Edm = (
            Flow(timestep_scale=timestep_scale) if sigma_data is None else Edm(sigma_data)
        )

    @property
    def dtype(self) -> torch.dtype:
        """The dtype the networks compute in."""
        dtype: torch.dtype = self.transformer.dtype
        return dtype

    @property
    def latent_channels(self) -> int:
        """Channels of the latents."""
        return int(self.transformer.config.out_channels)

    @property
    def patch(self) -> tuple[int, int, int]:
        """Latent frames, rows and columns in one token."""
        time, height, width = self.transformer.config.patch_size
        return int(time), int(height), int(width)

    def conditioned_on(
        self,
        text_tokens: Float[Tensor, "b m d"],
        control_latents: Mapping[str, Float[Tensor, "_ _ t h w"]],
        weights: Float[Tensor, "k _ n"] | Mapping[str, Float[Tensor, "_ n"]],
        conditioning: tuple[Float[Tensor, "#b c t2 h w"], int] | None = None,
    ) -> ConditionedModel:
        """Bind everything that stays the same over the steps of one sampling run.

        Args:
            text_tokens: The encoded prompt.
            control_latents: The encoded control clip of each control.
            weights: Token weights under the rule, one map per control: a mapping by name, or a
                tensor in the order of ``control_latents``. A control whose weights are all zero
                is left out, its branch is not run.
            conditioning: Clean latents of the frames inherited from the previous chunk, and how
                many of them there are.

        Raises:
            ShapeError: Controls without a branch, or sizes that do not fit together.
        """
        by_name = self._weights_by_name(control_latents, weights)
        _check_weights(by_name)
        active = tuple(name for name in control_latents if bool((by_name[name] != 0).any()))
        if self._projects_once:
            with torch.no_grad():
                text_tokens = self.transformer.crossattn_proj(text_tokens.to(self.dtype))
        batch_size = text_tokens.shape[0]
        latents = {
            name: control_latents[name].to(self.dtype).expand(batch_size, -1, -1, -1, -1)
            for name in active
        }
        clean = None
        if conditioning is not None and conditioning[1] > 0:
            frames, count = conditioning
            if frames.shape[2] < count:
                raise ShapeError(
                    explain(
                        "conditioning",
                        expected=f"clean latents of {count} inherited frames",
                        got=f"{frames.shape[2]}",
                        do="Pass the last latents of the previous chunk.",
                    )
                )
            clean = frames[:, :, :count]
        token_weights = {name: by_name[name].expand(batch_size, -1) for name in active}
        return ConditionedModel(
            model=self,
            text_tokens=text_tokens,
            control_latents=latents,
            weights=token_weights,
            clean_latents=clean,
            residuals=self._fixed_residuals(latents, token_weights),
        )

    def forward(
        self,
        noisy_latents: Float[Tensor, "b c t h w"],
        sigma: Float[Tensor, " b"],
        text_tokens: Float[Tensor, "b m d"],
        control_latents: Mapping[str, Float[Tensor, "b _ _ _ _"]],
        weights: Mapping[str, Float[Tensor, "b _"]],
        num_clean_frames: int = 0,
        residuals: list[Float[Tensor, "b _ _"]] | None = None,
    ) -> Float[Tensor, "b c t h w"]:
        """What the base predicts: the velocity, in a flow. Every control given is run, also with
        zero weights.

        Args:
            noisy_latents: Latents at ``sigma``, the first ``num_clean_frames`` of them clean.
            sigma: Noise level of each clip, in [0, 1].
            text_tokens: The encoded prompt.
            control_latents: The encoded control clip of each control.
            weights: Token weights of the same controls.
            num_clean_frames: Latent frames at the start that are given, not made.
            residuals: What these controls add, where it is known already; no branch is run then.
        """
        self._check_grid(noisy_latents)
        dtype = self.dtype
        latents = self.parametrisation.network_input(noisy_latents, sigma, num_clean_frames)
        latents = latents.to(dtype)
        timestep = self._timestep(sigma, noisy_latents, num_clean_frames)
        text = self._text_and_image(text_tokens.to(dtype))
        condition_mask = torch.zeros_like(latents[:, :1])
        condition_mask[:, :, :num_clean_frames] = 1.0
        # At the latents' own size, so that the networks' resizing of it changes nothing.
        padding_mask = latents.new_zeros(1, 1, *latents.shape[-2:])

        for name, control in control_latents.items():
            self._check_control(name, noisy_latents, control, weights[name])
        if residuals is None:
            residuals = self._sum_branches(
                control_latents,
                weights,
                latents=latents,
                timestep=timestep,
                text=text,
                condition_mask=condition_mask,
                padding_mask=padding_mask,
            )
        (velocity,) = self.transformer(
            hidden_states=latents,
            timestep=timestep,
            encoder_hidden_states=text,
            block_controlnet_hidden_states=residuals,
            condition_mask=condition_mask,
            padding_mask=padding_mask,
            return_dict=False,
        )
        return velocity.to(noisy_latents.dtype)

    def _run_branch(
        self,
        name: str,
        control: Float[Tensor, "b _ t h w"],
        weight: Float[Tensor, "b n"],
        *,
        latents: Tensor | None = None,
        timestep: Tensor | None = None,
        text: Tensor | tuple[Tensor, Tensor] | None = None,
        condition_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
    ) -> list[Float[Tensor, "b n _"]]:
        (of_branch,) = self.branches[name](
            controls_latents=control.to(self.dtype),
            latents=latents,
            timestep=timestep,
            encoder_hidden_states=text,
            condition_mask=condition_mask,
            padding_mask=padding_mask,
            return_dict=False,
        )
        return fuse_residuals([of_branch], self.local_tokens(weight)[None].to(self.dtype))

    def _sum_branches(
        self, control_latents: Mapping[str, Tensor], weights: Mapping[str, Tensor], **inputs: Any
    ) -> list[Tensor] | None:
        """Per block, what all controls add; None without controls."""
        branches = {
            name: partial(self._run_branch, name, control, weights[name], **inputs)
            for name, control in control_latents.items()
        }
        return _sum(self.run_branches(branches))

    @torch.no_grad()
    def _fixed_residuals(
        self, control_latents: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> list[Tensor] | None:
        """What the controls add at every step, where no branch looks at the latents; or None."""
        if any(getattr(self.branches[name], "reads_latents", True) for name in control_latents):
            return None
        for name, control in control_latents.items():
            self._check_control(name, control, control, weights[name])
        return self._sum_branches(control_latents, weights)

    def _weights_by_name(
        self,
        control_latents: Mapping[str, Tensor],
        weights: Float[Tensor, "k _ n"] | Mapping[str, Float[Tensor, "_ n"]],
    ) -> dict[str, Tensor]:
        unknown = [name for name in control_latents if name not in self.branches]
        if unknown:
            raise ShapeError(
                explain(
                    "controls",
                    expected="controls with a branch: " + (", ".join(self.branches) or "none"),
                    got=", ".join(unknown),
                    do="Leave them out, or load a checkpoint that has them.",
                )
            )
        if isinstance(weights, Tensor):
            if len(weights) != len(control_latents):
                raise ShapeError(
                    explain(
                        "weights",
                        expected=f"one map per control ({len(control_latents)})",
                        got=f"{len(weights)}",
                        do="Build both from the same list of controls.",
                    )
                )
            return dict(zip(control_latents, weights, strict=True))
        if weights.keys() != control_latents.keys():
            raise ShapeError(
                explain(
                    "weights",
                    expected="weights of " + (", ".join(control_latents) or "no control"),
                    got=", ".join(weights) or "none",
                    do="Build both from the same list of controls.",
                )
            )
        return dict(weights)

    def _timestep(
        self, sigma: Float[Tensor, " b"], latents: Float[Tensor, "b c t h w"], num_clean_frames: int
    ) -> Float[Tensor, "b ..."]:
        # float32: half precision would round neighbouring steps of a fine schedule together.
        sigma = sigma.to(device=latents.device)
        if num_clean_frames == 0 or self.clean_sigma is None:
            return self.parametrisation.timestep(sigma)
        sigma = sigma.to(torch.float32)
        per_frame = sigma[:, None].repeat(1, latents.shape[2])
        per_frame[:, :num_clean_frames] = self.clean_sigma
        return rearrange(per_frame * self.timestep_scale, "b t -> b 1 t 1 1")

    def _text_and_image(
        self, text_tokens: Float[Tensor, "b m d"]
    ) -> Tensor | tuple[Tensor, Tensor]:
        # Networks with an image context were trained with zeros where there is no image.
        config = self.transformer.config
        if not config.img_context_dim_in:
            return text_tokens
        image = text_tokens.new_zeros(
            text_tokens.shape[0], config.img_context_num_tokens, config.img_context_dim_in
        )
        return text_tokens, image

    def _check_grid(self, latents: Float[Tensor, "b c t h w"]) -> None:
        config = self.transformer.config
        # diffusers builds one list of positions for all axes, as long as the longest of them.
        limit = max(size // patch for size, patch in zip(config.max_size, self.patch, strict=True))
        for axis, size, patch in zip(
            ("latent frames", "latent rows", "latent columns"),
            latents.shape[2:],
            self.patch,
            strict=True,
        ):
            if size % patch or size // patch > limit:
                raise ShapeError(
                    explain(
                        "model",
                        expected=f"{axis} in multiples of {patch}, at most {limit * patch}",
                        got=f"{size}",
                        do="Pad the clip to the grid, or generate it at a smaller size.",
                    )
                )

    def _check_control(self, name: str, latents: Tensor, control: Tensor, weight: Tensor) -> None:
        if control.shape[2:] != latents.shape[2:]:
            raise ShapeError(
                explain(
                    f"control '{name}'",
                    expected=f"latents of size {tuple(latents.shape[2:])} (t h w), as the clip's",
                    got=f"{tuple(control.shape[2:])}",
                    do="Encode a control clip of the same size and length.",
                )
            )
        # Checked here because a weight of a single token would be spread over all of them.
        num_tokens = latents[0, 0].numel() // (self.patch[0] * self.patch[1] * self.patch[2])
        if weight.shape[-1] != num_tokens:
            raise ShapeError(
                explain(
                    f"control '{name}'",
                    expected=f"{num_tokens} token weights",
                    got=f"{weight.shape[-1]}",
                    do="Build them with weights.fusion.token_weights for this size.",
                )
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionedModel:
    """A denoiser: a model with its prompt, controls, weights and inherited frames bound.

    ``control_latents`` and ``weights`` hold the active controls only. ``residuals`` is what they
    add, where that is the same at every step.
    """

    model: ControlledModel
    text_tokens: Float[Tensor, "b m d"]
    control_latents: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    clean_latents: Float[Tensor, "#b c count h w"] | None
    residuals: list[Tensor] | None = None

    @torch.no_grad()
    def __call__(
        self, noisy_latents: Float[Tensor, "b c t h w"], sigma: float
    ) -> Float[Tensor, "b c t h w"]:
        """Estimate the clean latents; inherited frames come back as they were given."""
        count = 0 if self.clean_latents is None else self.clean_latents.shape[2]
        # float64: a sigma near 1 leaves little of the signal, and EDM divides by that little.
        sigmas = torch.full(
            (noisy_latents.shape[0],), sigma, dtype=torch.float64, device=noisy_latents.device
        )
        output = self.model(
            self._with_clean(noisy_latents),
            sigmas,
            self.text_tokens,
            self.control_latents,
            self.weights,
            num_clean_frames=count,
            residuals=self.residuals,
        )
        return self._with_clean(self.model.parametrisation.denoised(noisy_latents, output, sigma))

    def _with_clean(self, latents: Float[Tensor, "b c t h w"]) -> Float[Tensor, "b c t h w"]:
        if self.clean_latents is None:
            return latents
        clean = self.clean_latents.to(latents.dtype).expand(latents.shape[0], -1, -1, -1, -1)
        return torch.cat([clean, latents[:, :, clean.shape[2] :]], dim=2)


def _run_in_order(branches: Mapping[str, Callable[[], list[Tensor]]]) -> Iterator[list[Tensor]]:
    return (run() for run in branches.values())


def _all_tokens(weights: Tensor) -> Tensor:
    return weights


def _check_weights(weights: Mapping[str, Tensor]) -> None:
    # NaN in a weight would make a clip of NaN, which turns into black frames further on.
    for name, values in weights.items():
        if not bool((torch.isfinite(values) & (values >= 0)).all()):
            raise ShapeError(
                explain(
                    f"control '{name}'",
                    expected="finite weights of at least 0",
                    got=f"values from {float(values.min()):g} to {float(values.max()):g}",
                    do="Correct its weight map.",
                )
            )


def _sum(parts: Iterable[list[Tensor]]) -> list[Tensor] | None:
    """Per block, the sum over controls; None without any."""
    total: list[Tensor] | None = None
    for part in parts:
        if total is None:
            total = part
        elif torch.is_grad_enabled():
            total = [a + b for a, b in zip(total, part, strict=True)]
        else:
            # In place where no gradient needs the old sum: a residual of the 2B model is 354 MB.
            total = [a.add_(b) for a, b in zip(total, part, strict=True)]
    return total
