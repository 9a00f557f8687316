"""The published sampling formulas once more, as plain as they are on paper; nothing of ours.

Written from the papers and NVIDIA's published samplers, in float64: UniPC (bh2, second order) over
a rectified flow for Cosmos-Transfer2.5, RES 2ab over EDM for Cosmos-Transfer1. The networks
are called directly; conditioning masks, guidance, weights and preconditioning are spelt out here.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch


def guided(conditional, unconditional, guidance):
    """NVIDIA's convention: 0 is off."""
    return conditional + guidance * (conditional - unconditional)


def capped(weights):
    """The paper's rule: divide by the sum where it exceeds one."""
    total = sum(weights)
    return [w / total.clamp(min=1.0) for w in weights]


# ------------------------------------------------------------------------- Cosmos-Transfer2.5


def velocity_2_5(base, branches, x, timestep, text, controls, weights, num_clean):
    mask = torch.zeros_like(x[:, :1])
    mask[:, :, :num_clean] = 1.0
    padding = torch.zeros(1, 1, *x.shape[-2:], dtype=x.dtype)
    config = base.config
    image = torch.zeros(
        x.shape[0], config.img_context_num_tokens, config.img_context_dim_in, dtype=x.dtype
    )
    hints = None
    for branch, control, weight in zip(branches, controls, weights, strict=True):
        residuals = branch(
            controls_latents=control,
            latents=x,
            timestep=timestep,
            encoder_hidden_states=(text, image),
            condition_mask=mask,
            padding_mask=padding,
            return_dict=False,
        )[0]
        scaled = [r * weight[..., None] for r in residuals]
        hints = scaled if hints is None else [a + b for a, b in zip(hints, scaled, strict=True)]
    return base(
        hidden_states=x,
        timestep=timestep,
        encoder_hidden_states=(text, image),
        block_controlnet_hidden_states=hints,
        condition_mask=mask,
        padding_mask=padding,
        return_dict=False,
    )[0]


def karras_flow_grid(num_steps, largest, smallest, rho=7.0):
    i = torch.arange(num_steps, dtype=torch.float64) / max(num_steps - 1, 1)
    ratios = (largest ** (1 / rho) + i * (smallest ** (1 / rho) - largest ** (1 / rho))) ** rho
    return [float(r / (1 + r)) for r in ratios] + [0.0]


def shifted_flow_grid(num_steps, shift):
    even = [1.0 - i / num_steps for i in range(num_steps + 1)]
    return [shift * s / (1 + (shift - 1) * s) for s in even]


def unipc(denoise, x, sigmas):
    """Algorithm 5-8 of arXiv:2302.04867, data prediction, B(h) = exp(h) - 1, order two."""
    sigmas = [min(s, 1.0 - 1e-6) for s in sigmas]

    def log_snr(s):
        return math.inf if s == 0.0 else math.log((1.0 - s) / s)

    outputs, x_before = [], None
    num_steps, order_before = len(sigmas) - 1, 0
    for i in range(num_steps):
        denoised = denoise(x, sigmas[i])
        if i > 0:
            s0, s = sigmas[i - 1], sigmas[i]
            h = log_snr(s) - log_snr(s0)
            e = math.expm1(-h)
            m0 = outputs[-1]
            x = (s / s0) * x_before - (1.0 - s) * e * m0
            if order_before == 1:
                x = x - (1.0 - s) * e * 0.5 * (denoised - m0)
            else:
                r = (log_snr(sigmas[i - 2]) - log_snr(s0)) / h
                phi = e / -h - 1.0
                b0 = phi / e
                b1 = (phi / -h - 0.5) * 2.0 / e
                # [[1, 1], [r, 1]] (c0, c1) = (b0, b1)
                c0 = (b0 - b1) / (1.0 - r)
                c1 = b0 - c0
                older = (outputs[-2] - m0) / r
                x = x - (1.0 - s) * e * (c0 * older + c1 * (denoised - m0))
        outputs.append(denoised)
        s0, s = sigmas[i], sigmas[i + 1]
        order = min(2, i + 1, num_steps - i)
        h = log_snr(s) - log_snr(s0)
        e = math.expm1(-h)
        x_before = x
        x = (s / s0) * x_before - (1.0 - s) * e * denoised
        if order == 2:
            r = (log_snr(sigmas[i - 1]) - log_snr(s0)) / h
            x = x - (1.0 - s) * e * 0.5 * (outputs[-2] - denoised) / r
        order_before = order
    return x


def sample_2_5(
    base,
    branches,
    noise,
    text,
    negative,
    controls,
    weights,
    *,
    guidance,
    grid,
    inherited=None,
    clean_sigma=None,
):
    num_clean = 0 if inherited is None else inherited.shape[2]

    def denoise(x, sigma):
        if num_clean:
            x = torch.cat([inherited, x[:, :, num_clean:]], dim=2)
        timestep = torch.full((x.shape[0],), sigma)  # float32, as the published pipeline
        if num_clean and clean_sigma is not None:
            timestep = torch.full((x.shape[0], 1, x.shape[2], 1, 1), sigma)
            timestep[:, :, :num_clean] = clean_sigma
        v = [
            velocity_2_5(base, branches, x, timestep, t, controls, weights, num_clean)
            for t in (text, negative)
        ]
        clean = x - sigma * guided(*v, guidance)
        return torch.cat([inherited, clean[:, :, num_clean:]], dim=2) if num_clean else clean

    return unipc(denoise, noise, grid)


# --------------------------------------------------------------------------- Cosmos-Transfer1


def branch_1(branch, x, c_noise, text, control, mask):
    """The published control encoder: hint added once, after the first block."""
    b, _, t, h, w = x.shape
    zeros = torch.zeros(b, 1, t, h, w, dtype=x.dtype)
    stacked = torch.cat([x, mask, zeros], dim=1)
    tokens = patches(stacked) @ branch.patch_embed_base.proj.weight.T
    free = branch.config.hint_channels - control.shape[1]
    padded = torch.cat([control, zeros.expand(-1, free, -1, -1, -1), zeros], dim=1)
    hint = patches(padded) @ branch.patch_embed.proj.weight.T
    layers = [layer for layer in branch.hint_layers if hasattr(layer, "weight")]
    for index, layer in enumerate(layers):
        hint = hint @ layer.weight.T + layer.bias
        if index < len(layers) - 1:
            hint = hint * torch.sigmoid(hint)
    rotary, positions = branch.rope(stacked), branch.learnable_pos_embed(stacked)
    time, embedded = branch.time_embed(tokens, c_noise)
    outs = []
    for index, block in enumerate(branch.control_blocks):
        tokens = block(tokens, text, embedded, time, rotary, positions)
        if index == 0:
            tokens = tokens + hint
        zero = branch.zero_blocks[index]
        outs.append(tokens @ zero.weight.T + zero.bias)
    return outs


def patches(x):
    """1 x 2 x 2 patches, time slowest: b n (c 1 2 2)."""
    b, c, t, h, w = x.shape
    x = x.reshape(b, c, t, h // 2, 2, w // 2, 2).permute(0, 2, 3, 5, 1, 4, 6)
    return x.reshape(b, t * (h // 2) * (w // 2), c * 4)


def denoise_1(base, branches, x, sigma, text, controls, weights, inherited, sigma_data=0.5):
    """EDM preconditioning, equation 7 and table 1 of arXiv:2206.00364."""
    root = math.sqrt(sigma**2 + sigma_data**2)
    c_skip, c_out, c_in = sigma_data**2 / root**2, sigma * sigma_data / root, 1 / root
    c_noise = torch.full((x.shape[0],), 0.25 * math.log(sigma))
    num_clean = 0 if inherited is None else inherited.shape[2]
    mask = torch.zeros_like(x[:, :1])
    mask[:, :, :num_clean] = 1.0
    if num_clean:
        # Inherited frames enter with the scale of a noise of 0.001, whatever sigma is.
        scale = 1 / math.sqrt(0.001**2 + sigma_data**2) / c_in
        x = torch.cat([inherited * scale, x[:, :, num_clean:]], dim=2)
    hints = None
    for branch, control, weight in zip(branches, controls, weights, strict=True):
        outs = branch_1(branch, c_in * x, c_noise, text, control, mask)
        scaled = [out * weight[..., None] for out in outs]
        hints = scaled if hints is None else [a + b for a, b in zip(hints, scaled, strict=True)]
    missing = len(base.transformer_blocks) - len(hints or [])
    output = super(type(base), base).forward(
        hidden_states=c_in * x,
        timestep=c_noise,
        encoder_hidden_states=text,
        block_controlnet_hidden_states=None if hints is None else hints + [None] * missing,
        condition_mask=mask,
        padding_mask=torch.zeros(1, 1, *x.shape[-2:], dtype=x.dtype),
        return_dict=False,
    )[0]
    clean = c_skip * x + c_out * output
    return torch.cat([inherited, clean[:, :, num_clean:]], dim=2) if num_clean else clean


def res_2ab(denoise, x, sigmas):
    """NVIDIA's multistep sampler over EDM's sigmas, and its last call at the smallest one."""
    before = None
    for sigma, after in pairwise(sigmas):
        clean = denoise(x, sigma)
        if before is None:
            x = (sigma - after) / sigma * clean + after / sigma * x
        else:
            clean_before, sigma_before = before
            s, t, m = -math.log(sigma), -math.log(after), -math.log(sigma_before)
            dt = t - s
            c2 = (m - s) / dt
            phi1 = math.expm1(-dt) / -dt
            phi2 = (phi1 - 1) / -dt
            b1, b2 = phi1 - phi2 / c2, phi2 / c2
            x = math.exp(-dt) * x + dt * (b1 * clean + b2 * clean_before)
        before = (clean, sigma)
    return denoise(x, sigmas[-1])


def heun_edm(denoise, x, sigmas):
    """Algorithm 1 of arXiv:2206.00364 without churn, and a last call at the smallest sigma."""
    for sigma, after in pairwise(sigmas):
        slope = (x - denoise(x, sigma)) / sigma
        euler = x + (after - sigma) * slope
        x = x + (after - sigma) * 0.5 * (slope + (euler - denoise(euler, after)) / after)
    return denoise(x, sigmas[-1])


def edm_grid(num_steps, sigma_max=80.0, sigma_min=0.002, rho=7.0):
    i = torch.arange(num_steps + 1, dtype=torch.float64) / num_steps
    grid = (sigma_max ** (1 / rho) + i * (sigma_min ** (1 / rho) - sigma_max ** (1 / rho))) ** rho
    return [float(s) for s in grid]


def sample_1(
    base,
    branches,
    noise,
    text,
    negative,
    controls,
    weights,
    *,
    guidance,
    num_steps,
    sigma_max=80.0,
    clip=None,
    inherited=None,
    method=res_2ab,
):
    x = noise * sigma_max if clip is None else clip + noise * sigma_max

    def denoise(x, sigma):
        each = [
            denoise_1(base, branches, x, sigma, t, controls, weights, inherited)
            for t in (text, negative)
        ]
        return guided(*each, guidance)

    return method(denoise, x, edm_grid(num_steps, sigma_max=sigma_max))
