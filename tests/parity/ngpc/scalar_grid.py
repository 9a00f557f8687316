"""The grid encoding once more, point by point and corner by corner, in Python numbers.

Written from the description of tiny-cuda-nn's encoding, sharing no code with the package, not even
the sizes of levels. Slow on purpose: whole numbers are Python's, features are summed in double.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

PRIMES = (1, 2654435761, 805459861, 3674653429)


@dataclass(frozen=True, kw_only=True)
class ScalarGrid:
    kind: str
    num_dims: int
    num_levels: int
    features: int
    log2_table_size: int
    base_resolution: int
    per_level_scale: float

    def scale(self, level: int) -> float:
        log2_growth = np.float32(math.log2(np.float32(self.per_level_scale)))
        exponent = np.float32(level) * log2_growth
        growth = np.float32(math.exp2(float(exponent)))
        return float(growth * np.float32(self.base_resolution) - np.float32(1.0))

    def resolution(self, level: int) -> int:
        return math.ceil(self.scale(level)) + 1

    def num_entries(self, level: int) -> int:
        dense = min(self.resolution(level) ** self.num_dims, 2**31 - 1)
        dense = (dense + 7) // 8 * 8
        if self.kind == "hash":
            return min(dense, 1 << self.log2_table_size)
        if self.kind == "tiled":
            return min(dense, self.base_resolution**self.num_dims)
        return dense

    def offset(self, level: int) -> int:
        return sum(self.num_entries(lower) for lower in range(level))

    def row(self, level: int, vertex: tuple[int, ...]) -> int:
        """Row of the shared table that belongs to a vertex of a level."""
        vertex = tuple(coordinate % 2**32 for coordinate in vertex)
        resolution, size = self.resolution(level), self.num_entries(level)
        if self.kind == "hash" and size < resolution**self.num_dims:
            index = 0
            for coordinate, prime in zip(vertex, PRIMES, strict=False):
                index ^= coordinate * prime % 2**32
        else:
            index = sum(c * resolution**axis for axis, c in enumerate(vertex)) % 2**32
        return self.offset(level) + index % size

    def coordinates(self, level: int, position: np.ndarray) -> list[float]:
        """Grid coordinates; for single-precision positions rounded once, as an fma rounds."""
        exact = [self.scale(level) * float(x) + 0.5 for x in position]
        return exact if position.dtype == np.float64 else [float(np.float32(c)) for c in exact]

    def corners(
        self, level: int, position: np.ndarray, interpolation: str
    ) -> list[tuple[int, float]]:
        """Rows and weights of what a level gives at a position."""
        coordinates = self.coordinates(level, position)
        cell = [math.floor(c) for c in coordinates]
        if interpolation == "nearest":
            return [(self.row(level, tuple(cell)), 1.0)]
        found = []
        for corner in range(2**self.num_dims):
            weight, vertex = 1.0, []
            for axis in range(self.num_dims):
                upper = coordinates[axis] - cell[axis]
                if interpolation == "smoothstep":
                    upper = upper**2 * (3 - 2 * upper)
                is_upper = corner >> axis & 1
                weight *= upper if is_upper else 1 - upper
                vertex.append(cell[axis] + is_upper)
            found.append((self.row(level, tuple(vertex)), weight))
        return found

    def encode(self, positions: np.ndarray, table: np.ndarray, interpolation: str) -> np.ndarray:
        encoded = np.zeros((len(positions), self.num_levels * self.features))
        for point, position in enumerate(positions):
            for level in range(self.num_levels):
                for row, weight in self.corners(level, position, interpolation):
                    for feature in range(self.features):
                        column = level * self.features + feature
                        encoded[point, column] += weight * float(table[row, feature])
        return encoded

    def table_gradient(
        self, positions: np.ndarray, num_rows: int, upstream: np.ndarray, interpolation: str
    ) -> np.ndarray:
        gradient = np.zeros((num_rows, self.features))
        for point, position in enumerate(positions):
            for level in range(self.num_levels):
                for row, weight in self.corners(level, position, interpolation):
                    for feature in range(self.features):
                        column = level * self.features + feature
                        gradient[row, feature] += weight * upstream[point, column]
        return gradient
