"""Fit an image: train a field on its pixels until it looks like it.

PSNR is over all pixels and channels, on ``rgb_srgb`` in [0, 1], the field's values clipped to that
range as a written file would have them.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional

from ngpc.backends.registry import AUTO
from ngpc.config import GridConfig, ImageFitConfig, growth_to_reach
from ngpc.data.images import Image
from ngpc.fields.image import ImageField, pixel_positions
from ngpc.tasks.training import derived_generator, refuse_unless_finite

logger = logging.getLogger(__name__)

INIT_STREAM, PIXEL_STREAM = 0, 1  # what a seed is used for, so that the uses share no numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFit:
    """A trained field and how well it does."""

    field: ImageField
    config: ImageFitConfig
    """As used: the encoding is filled in."""
    psnr_db: float
    losses: tuple[float, ...]
    """Mean squared error of each step's pixels."""
    duration_s: float


def encoding_for_image(height: int, width: int) -> GridConfig:
    """A hash grid whose finest level has as many vertices along an axis as the image has pixels.

    The table has about as many rows per level as the image has pixels, and is never larger than
    2^24 rows. instant-ngp stops at half the longer side; going all the way costs table rows and was
    8 dB better on a 128x128 photograph after 80 steps.
    """
    base = GridConfig(num_levels=16, features_per_level=2, base_resolution=16)
    return replace(
        base,
        log2_table_size=min(24, max(10, math.ceil(math.log2(max(2, height * width))))),
        per_level_scale=growth_to_reach(
            max(height, width),
            base_resolution=base.base_resolution,
            num_levels=base.num_levels,
        ),
    )


def fit_image(
    image: Image,
    config: ImageFitConfig | None = None,
    *,
    device: str = "cpu",
    backend: str = AUTO,
    on_step: Callable[[int, float], None] | None = None,
) -> ImageFit:
    """Train a field on an image with Adam.

    Each step sees ``batch_size`` pixels drawn with replacement, or all of them where there are no
    more than that. The same seed on the same device gives the same field.

    Args:
        image: What to fit.
        config: How; None for the defaults.
        device: Where, as torch names it.
        backend: A name out of ``ngpc backends``, or ``auto``.
        on_step: Called after each step with its index and its mean squared error.

    Raises:
        ConfigError: training left the finite numbers.
    """
    config = config or ImageFitConfig()
    if config.encoding is None:
        config = replace(config, encoding=encoding_for_image(image.height, image.width))
    assert config.encoding is not None
    started = time.perf_counter()
    field = ImageField(
        height=image.height,
        width=image.width,
        encoding=config.encoding,
        network=config.network,
        generator=derived_generator(config.seed, INIT_STREAM),
        backend=backend,
    ).to(device)
    optimizer = _optimizer(field, config)
    pixels = torch.from_numpy(image.rgb_srgb).reshape(-1, 3)
    draw = derived_generator(config.seed, PIXEL_STREAM)
    losses = []
    for step_index in range(config.num_steps):
        if len(pixels) <= config.batch_size:
            pixel_index = torch.arange(len(pixels))
        else:
            pixel_index = torch.randint(len(pixels), (config.batch_size,), generator=draw)
        positions = pixel_positions(pixel_index, height=image.height, width=image.width)
        target = pixels[pixel_index].to(device)
        loss = functional.mse_loss(field(positions.to(device)), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        refuse_unless_finite(losses[-1], where=f"fit_image step {step_index}")
        if on_step is not None:
            on_step(step_index, losses[-1])
    duration_s = time.perf_counter() - started
    fit = ImageFit(
        field=field,
        config=config,
        psnr_db=image_psnr(field, image),
        losses=tuple(losses),
        duration_s=duration_s,
    )
    logger.info("%d steps in %.1f s: %.2f dB", config.num_steps, duration_s, fit.psnr_db)
    return fit


@torch.inference_mode()
def image_psnr(field: ImageField, image: Image, *, chunk_size: int = 2**18) -> float:
    """Peak signal-to-noise ratio of a field against an image of any size, in dB.

    Chunk by chunk: a second image of that size may not fit into memory.
    """
    device = next(field.parameters()).device
    pixels = image.rgb_srgb.reshape(-1, 3)
    total = 0.0
    for start in range(0, len(pixels), chunk_size):
        stop = min(start + chunk_size, len(pixels))
        index = torch.arange(start, stop, device=device)
        found = field(pixel_positions(index, height=image.height, width=image.width))
        found_pixels = np.clip(found.cpu().numpy(), 0.0, 1.0).astype(np.float64)
        total += float(np.square(found_pixels - pixels[start:stop]).sum())
    mean_squared = total / pixels.size
    return math.inf if mean_squared == 0.0 else -10.0 * math.log10(mean_squared)


def psnr(rendered: np.ndarray, target: np.ndarray) -> float:
    """Peak signal-to-noise ratio for values in [0, 1], in dB; infinite where nothing differs."""
    difference = np.clip(rendered, 0.0, 1.0).astype(np.float64) - target
    mean_squared = float(np.mean(np.square(difference)))
    return math.inf if mean_squared == 0.0 else -10.0 * math.log10(mean_squared)


def _optimizer(field: ImageField, config: ImageFitConfig) -> torch.optim.Adam:
    """Adam, with L2 regularisation of the matrices alone.

    Unlike tiny-cuda-nn's, it also moves table entries that no pixel of the step has touched, by
    their running mean.
    """
    adam = config.optimizer
    groups = [
        {"params": list(field.network.parameters()), "weight_decay": adam.l2_reg},
        {"params": list(field.encoding.parameters()), "weight_decay": 0.0},
    ]
    return torch.optim.Adam(
        [group for group in groups if group["params"]],
        lr=adam.learning_rate,
        betas=(adam.beta1, adam.beta2),
        eps=adam.epsilon,
    )
