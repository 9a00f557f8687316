"""Kernels of the multi-resolution grid: encode, and its gradients.

The launch grid is (blocks of points, levels), level by level, so that one level's table stays in
the cache while it is read. Entries are loaded in the table's precision and summed in float32.
Coordinates are unsigned 32-bit numbers that wrap, as in the definition.

Run-time type checks skip kernels: what is compiled is not called with tensors.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

NEAREST = tl.constexpr(0)
LINEAR = tl.constexpr(1)
SMOOTHSTEP = tl.constexpr(2)


@triton.jit
@no_type_check
def locate(positions, rows, mask, scale, axis: tl.constexpr, num_dims: tl.constexpr):
    """The cell of each position along one axis, and how far into it the position lies."""
    x = tl.load(positions + rows * num_dims + axis, mask=mask, other=0.0).to(tl.float32)
    located = tl.fma(x, tl.zeros_like(x) + scale, tl.zeros_like(x) + 0.5)
    cell = tl.floor(located)
    return located - cell, cell.to(tl.int32).to(tl.uint32)


@triton.jit
@no_type_check
def upper_weight(fraction, interpolation: tl.constexpr):
    """The weight of the upper vertex along one axis."""
    weight = fraction
    if interpolation == SMOOTHSTEP:
        weight = fraction * fraction * (3.0 - 2.0 * fraction)
    return weight


@triton.jit
@no_type_check
def upper_weight_slope(fraction, interpolation: tl.constexpr):
    """The derivative of the weight of the upper vertex."""
    slope = tl.zeros_like(fraction) + 1.0
    if interpolation == SMOOTHSTEP:
        slope = 6.0 * fraction * (1.0 - fraction)
    return slope


@triton.jit
@no_type_check
def table_row(v0, v1, v2, v3, resolution, num_entries, is_hashed, num_dims: tl.constexpr):
    """Which row of the level's own table belongs to each vertex."""
    hashed = v0 ^ (v1 * 2654435761)
    walked = v0 + v1 * resolution
    if num_dims > 2:
        hashed = hashed ^ (v2 * 805459861)
        walked = walked + v2 * (resolution * resolution)
    if num_dims > 3:
        hashed = hashed ^ (v3 * 3674653429)
        walked = walked + v3 * (resolution * resolution * resolution)
    return (tl.where(is_hashed, hashed, walked) % num_entries).to(tl.int64)


@triton.jit
@no_type_check
def locate_all(positions, rows, mask, scale, num_dims: tl.constexpr):
    """:func:`locate` along every axis: cells, then fractions. Axes that are not there repeat the
    second one and are not used."""
    f0, c0 = locate(positions, rows, mask, scale, 0, num_dims)
    f1, c1 = locate(positions, rows, mask, scale, 1, num_dims)
    f2, c2 = f1, c1
    f3, c3 = f1, c1
    if num_dims > 2:
        f2, c2 = locate(positions, rows, mask, scale, 2, num_dims)
    if num_dims > 3:
        f3, c3 = locate(positions, rows, mask, scale, 3, num_dims)
    return c0, c1, c2, c3, f0, f1, f2, f3


@triton.jit
@no_type_check
def upper_weights(f0, f1, f2, f3, interpolation: tl.constexpr):
    """:func:`upper_weight` along every axis."""
    return (
        upper_weight(f0, interpolation),
        upper_weight(f1, interpolation),
        upper_weight(f2, interpolation),
        upper_weight(f3, interpolation),
    )


@triton.jit
@no_type_check
def corner_row(
    corner: tl.constexpr, c0, c1, c2, c3, resolution, num_entries, is_hashed,
    num_dims: tl.constexpr,
):  # fmt: skip
    """The row of one corner of each cell; bit ``i`` of ``corner`` is its place along axis ``i``."""
    return table_row(
        c0 + (corner & 1), c1 + ((corner >> 1) & 1), c2 + ((corner >> 2) & 1),
        c3 + ((corner >> 3) & 1), resolution, num_entries, is_hashed, num_dims,
    )  # fmt: skip


@triton.jit
@no_type_check
def corner_weight(corner: tl.constexpr, u0, u1, u2, u3, num_dims: tl.constexpr):
    """The weight of one corner: the product over the axes."""
    weight = (u0 if corner & 1 else 1.0 - u0) * (u1 if corner & 2 else 1.0 - u1)
    if num_dims > 2:
        weight = weight * (u2 if corner & 4 else 1.0 - u2)
    if num_dims > 3:
        weight = weight * (u3 if corner & 8 else 1.0 - u3)
    return weight


@triton.jit
@no_type_check
def load_level(scales, levels, level):
    """Scale, resolution, offset, number of entries and kind of one level."""
    fields = levels + level * 4
    return (
        tl.load(scales + level),
        tl.load(fields).to(tl.uint32),
        tl.load(fields + 1),
        tl.load(fields + 2).to(tl.uint32),
        tl.load(fields + 3) != 0,
    )


@triton.jit
@no_type_check
def encode_kernel(
    positions, table, outputs, scales, levels, num_points,
    num_levels: tl.constexpr, num_dims: tl.constexpr, num_features: tl.constexpr,
    interpolation: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Features of a block of points on one level."""
    level = tl.program_id(1)
    rows = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = rows < num_points
    scale, resolution, offset, num_entries, is_hashed = load_level(scales, levels, level)
    c0, c1, c2, c3, f0, f1, f2, f3 = locate_all(positions, rows, mask, scale, num_dims)
    u0, u1, u2, u3 = upper_weights(f0, f1, f2, f3, interpolation)
    columns = tl.arange(0, num_features)
    total = tl.zeros([block, num_features], dtype=tl.float32)
    num_corners: tl.constexpr = 1 if interpolation == NEAREST else 1 << num_dims
    for corner in tl.static_range(num_corners):
        row = corner_row(
            corner, c0, c1, c2, c3, resolution, num_entries, is_hashed, num_dims
        )  # fmt: skip
        entries = tl.load(
            table + (offset + row)[:, None] * num_features + columns[None, :],
            mask=mask[:, None],
            other=0.0,
        ).to(tl.float32)
        if interpolation == NEAREST:
            total += entries
        else:
            weight = corner_weight(corner, u0, u1, u2, u3, num_dims)
            total += weight[:, None] * entries
    tl.store(
        outputs + (rows * num_levels + level)[:, None] * num_features + columns[None, :],
        total.to(outputs.dtype.element_ty),
        mask=mask[:, None],
    )


@triton.jit
@no_type_check
def table_gradient_kernel(
    positions, upstream, gradient, scales, levels, num_points,
    num_levels: tl.constexpr, num_dims: tl.constexpr, num_features: tl.constexpr,
    interpolation: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Scatter a block of upstream gradients to one level's entries; ``gradient`` is float32."""
    level = tl.program_id(1)
    rows = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = rows < num_points
    scale, resolution, offset, num_entries, is_hashed = load_level(scales, levels, level)
    c0, c1, c2, c3, f0, f1, f2, f3 = locate_all(positions, rows, mask, scale, num_dims)
    u0, u1, u2, u3 = upper_weights(f0, f1, f2, f3, interpolation)
    columns = tl.arange(0, num_features)
    arriving = tl.load(
        upstream + (rows * num_levels + level)[:, None] * num_features + columns[None, :],
        mask=mask[:, None],
        other=0.0,
    ).to(tl.float32)
    num_corners: tl.constexpr = 1 if interpolation == NEAREST else 1 << num_dims
    for corner in tl.static_range(num_corners):
        row = corner_row(
            corner, c0, c1, c2, c3, resolution, num_entries, is_hashed, num_dims
        )  # fmt: skip
        share = arriving
        if interpolation != NEAREST:
            weight = corner_weight(corner, u0, u1, u2, u3, num_dims)
            share = weight[:, None] * arriving
        tl.atomic_add(
            gradient + (offset + row)[:, None] * num_features + columns[None, :],
            share,
            mask=mask[:, None],
            sem="relaxed",
        )


@triton.jit
@no_type_check
def position_gradient_kernel(
    positions, table, upstream, gradient, scales, levels, num_points,
    num_levels: tl.constexpr, num_dims: tl.constexpr, num_features: tl.constexpr,
    interpolation: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of positions, summed over all levels; ``gradient`` is float32."""
    rows = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = rows < num_points
    columns = tl.arange(0, num_features)
    total0 = tl.zeros([block], dtype=tl.float32)
    total1 = tl.zeros([block], dtype=tl.float32)
    total2 = tl.zeros([block], dtype=tl.float32)
    total3 = tl.zeros([block], dtype=tl.float32)
    for level in range(num_levels):
        scale, resolution, offset, num_entries, is_hashed = load_level(scales, levels, level)
        c0, c1, c2, c3, f0, f1, f2, f3 = locate_all(positions, rows, mask, scale, num_dims)
        u0, u1, u2, u3 = upper_weights(f0, f1, f2, f3, interpolation)
        arriving = tl.load(
            upstream + (rows * num_levels + level)[:, None] * num_features + columns[None, :],
            mask=mask[:, None],
            other=0.0,
        ).to(tl.float32)
        g0 = tl.zeros([block], dtype=tl.float32)
        g1 = tl.zeros([block], dtype=tl.float32)
        g2 = tl.zeros([block], dtype=tl.float32)
        g3 = tl.zeros([block], dtype=tl.float32)
        for corner in tl.static_range(1 << num_dims):
            row = corner_row(
                corner, c0, c1, c2, c3, resolution, num_entries, is_hashed, num_dims
            )  # fmt: skip
            entries = tl.load(
                table + (offset + row)[:, None] * num_features + columns[None, :],
                mask=mask[:, None],
                other=0.0,
            ).to(tl.float32)
            along = tl.sum(entries * arriving, axis=1)
            w0 = u0 if corner & 1 else 1.0 - u0
            w1 = u1 if corner & 2 else 1.0 - u1
            w23 = tl.zeros([block], dtype=tl.float32) + 1.0
            if num_dims > 2:
                w23 = u2 if corner & 4 else 1.0 - u2
            if num_dims > 3:
                w3 = u3 if corner & 8 else 1.0 - u3
                through3 = w0 * w1 * w23 * along
                g3 += through3 if corner & 8 else -through3
                w23 = w23 * w3
            through0 = w1 * w23 * along
            through1 = w0 * w23 * along
            g0 += through0 if corner & 1 else -through0
            g1 += through1 if corner & 2 else -through1
            if num_dims > 2:
                through2 = w0 * w1 * along
                if num_dims > 3:
                    through2 = through2 * (u3 if corner & 8 else 1.0 - u3)
                g2 += through2 if corner & 4 else -through2
        total0 += scale * upper_weight_slope(f0, interpolation) * g0
        total1 += scale * upper_weight_slope(f1, interpolation) * g1
        total2 += scale * upper_weight_slope(f2, interpolation) * g2
        total3 += scale * upper_weight_slope(f3, interpolation) * g3
    tl.store(gradient + rows * num_dims, total0, mask=mask)
    tl.store(gradient + rows * num_dims + 1, total1, mask=mask)
    if num_dims > 2:
        tl.store(gradient + rows * num_dims + 2, total2, mask=mask)
    if num_dims > 3:
        tl.store(gradient + rows * num_dims + 3, total3, mask=mask)
