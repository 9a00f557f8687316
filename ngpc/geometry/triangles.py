"""Distances to triangles, winding numbers, and which cells of a grid lie inside a surface."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

CLUSTER_SIZE = 48  # triangles whose far field is one dipole
FAR = 3.0  # radii of a cluster beyond which its dipole stands for it
NUM_NEIGHBOURS = 6  # candidates for the nearest triangle


def face_normals(corners: Float[np.ndarray, "n 3 3"]) -> Float[np.ndarray, "n 3"]:
    """Normals twice as long as the triangles are large, by the right-hand rule."""
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


def sample_triangles(
    corners: Float[np.ndarray, "n 3 3"], num_points: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "p 3"], Int[np.ndarray, " p"]]:
    """Points spread evenly over a surface, and the triangle of each."""
    areas = np.linalg.norm(face_normals(corners), axis=1)
    faces = rng.choice(len(corners), size=num_points, p=areas / areas.sum())
    u, v = rng.random((2, num_points))
    folded = u + v > 1.0
    u, v = np.where(folded, 1.0 - u, u), np.where(folded, 1.0 - v, v)
    a, b, c = (corners[faces, index] for index in range(3))
    return a + u[:, None] * (b - a) + v[:, None] * (c - a), faces


def closest_on_triangles(
    points: Float[np.ndarray, "p 3"], corners: Float[np.ndarray, "p 3 3"]
) -> Float[np.ndarray, "p 3"]:
    """The nearest point of one triangle to each point.

    Source:
        Ericson, Real-time collision detection, section 5.1.5.
    """
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    ab, ac = b - a, c - a

    def dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.einsum("ij,ij->i", left, right)

    d1, d2 = dot(ab, points - a), dot(ac, points - a)
    d3, d4 = dot(ab, points - b), dot(ac, points - b)
    d5, d6 = dot(ab, points - c), dot(ac, points - c)
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    total = va + vb + vc
    with np.errstate(divide="ignore", invalid="ignore"):
        along_ab, along_ac = d1 / (d1 - d3), d2 / (d2 - d6)
        along_bc = (d4 - d3) / ((d4 - d3) + (d5 - d6))
        inside_v, inside_w = vb / total, vc / total
    cases = [
        ((d1 <= 0) & (d2 <= 0), a),
        ((d3 >= 0) & (d4 <= d3), b),
        ((d6 >= 0) & (d5 <= d6), c),
        ((vc <= 0) & (d1 >= 0) & (d3 <= 0), a + along_ab[:, None] * ab),
        ((vb <= 0) & (d2 >= 0) & (d6 <= 0), a + along_ac[:, None] * ac),
        ((va <= 0) & (d4 >= d3) & (d5 >= d6), b + along_bc[:, None] * (c - b)),
    ]
    closest = a + inside_v[:, None] * ab + inside_w[:, None] * ac
    for is_case, where in reversed(cases):
        closest = np.where(is_case[:, None], where, closest)
    return closest


class Surface:
    """Triangles, arranged so that distances and signs are quick to find."""

    def __init__(self, corners: Float[np.ndarray, "n 3 3"], *, seed: int = 0) -> None:
        """Spread samples for the nearest-triangle search and group triangles for far fields."""
        self.corners = corners
        rng = np.random.default_rng(seed)
        samples, faces = sample_triangles(corners, max(100_000, 4 * len(corners)), rng)
        self._tree = cKDTree(np.concatenate([corners.mean(axis=1), samples]))
        self._faces_of_samples = np.concatenate([np.arange(len(corners)), faces])
        normals = face_normals(corners)
        self._normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
        self._clusters = _clusters(corners.mean(axis=1))

    def closest(
        self, points: Float[np.ndarray, "p 3"]
    ) -> tuple[Float[np.ndarray, "p 3"], Int[np.ndarray, " p"]]:
        """The nearest point of the surface, and its triangle.

        Exact for the triangles near the samples that are nearest; samples lie so dense that a
        nearer triangle is missed only where it is nearer by less than their spacing. Where an edge
        or a corner is nearest, the triangle is the one that is seen least edge-on: its side of the
        point is then the surface's.
        """
        _, neighbours = self._tree.query(points, k=NUM_NEIGHBOURS)
        best = np.full(len(points), np.inf)
        facing = np.zeros(len(points))
        where, face = np.zeros_like(points), np.zeros(len(points), dtype=np.int64)
        for column in range(NUM_NEIGHBOURS):
            candidates = self._faces_of_samples[neighbours[:, column]]
            found = closest_on_triangles(points, self.corners[candidates])
            squared = np.square(found - points).sum(axis=1)
            seen = np.abs(np.einsum("ij,ij->i", points - found, self._normals[candidates]))
            is_tied = np.isclose(squared, best, rtol=1e-6, atol=1e-18)
            is_better = np.where(is_tied, seen > facing, squared < best)
            best = np.where(is_better, squared, best)
            facing = np.where(is_better, seen, facing)
            where = np.where(is_better[:, None], found, where)
            face = np.where(is_better, candidates, face)
        return where, face

    def winding_number(self, points: Float[np.ndarray, "p 3"]) -> Float[np.ndarray, " p"]:
        """How often the surface goes round each point: 1 inside a closed one, 0 outside.

        Fractions where the surface is open; above a half counts as inside. Clusters of triangles
        that are far away count as one dipole.

        Source:
            Jacobson et al., Robust inside-outside segmentation using generalized winding numbers;
            Barill et al., Fast winding numbers for soups and clouds, order 0.
        """
        total = np.zeros(len(points))
        for faces in self._clusters:
            corners = self.corners[faces]
            normals = face_normals(corners) / 2.0
            centre = corners.mean(axis=(0, 1))
            radius = np.linalg.norm(corners - centre, axis=2).max()
            offset = centre - points
            distance = np.linalg.norm(offset, axis=1)
            is_near = distance < FAR * radius
            far = ~is_near
            total[far] += offset[far] @ normals.sum(axis=0) / distance[far] ** 3
            total[is_near] += _solid_angles(points[is_near], corners).sum(axis=1)
        return total / (4.0 * np.pi)

    def signed_distance(
        self, points: Float[np.ndarray, "p 3"], *, is_watertight: bool
    ) -> Float[np.ndarray, " p"]:
        """Distance to the surface, negative inside.

        A closed surface knows its inside from the side of the nearest triangle; an open one from
        the winding number, which takes much longer.
        """
        closest, faces = self.closest(points)
        distance = np.linalg.norm(closest - points, axis=1)
        if is_watertight:
            side = np.einsum("ij,ij->i", points - closest, self._normals[faces])
            return np.where(side < 0.0, -distance, distance)
        return np.where(self.winding_number(points) > 0.5, -distance, distance)

    def normals(self, faces: Int[np.ndarray, " p"]) -> Float[np.ndarray, "p 3"]:
        """Unit normals of triangles."""
        return self._normals[faces]


def cells_inside(corners: Float[np.ndarray, "n 3 3"], resolution: int) -> Bool[np.ndarray, "r r r"]:
    """Which cell centres of a grid over the unit cube a closed surface encloses, indexed x y z.

    Every column of cells along z counts the triangles it crosses, up minus down. The columns are
    shifted by a millionth of a cell, so that none runs exactly through an edge.
    """
    crossings = np.zeros((resolution, resolution, resolution + 1), dtype=np.int32)
    scaled = corners * resolution - np.array([0.5 + 1.3e-6, 0.5 + 2.9e-6, 0.5])
    a, b, c = scaled[:, 0], scaled[:, 1], scaled[:, 2]
    area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    low = np.ceil(scaled[:, :, :2].min(axis=1)).astype(int)
    size = np.floor(scaled[:, :, :2].max(axis=1)).astype(int) - low + 1
    spans = np.where(area != 0.0, np.maximum(size, 0).prod(axis=1), 0)
    # Every pair of a triangle and a column of the rectangle around it.
    face = np.repeat(np.arange(len(corners)), spans)
    column = np.arange(len(face)) - np.repeat(np.cumsum(spans) - spans, spans)
    x = low[face, 0] + column // size[face, 1]
    y = low[face, 1] + column % size[face, 1]
    a, b, c, area = a[face], b[face], c[face], area[face]
    v = ((x - a[:, 0]) * (c[:, 1] - a[:, 1]) - (y - a[:, 1]) * (c[:, 0] - a[:, 0])) / area
    w = ((b[:, 0] - a[:, 0]) * (y - a[:, 1]) - (b[:, 1] - a[:, 1]) * (x - a[:, 0])) / area
    is_hit = (v >= 0) & (w >= 0) & (v + w <= 1)
    is_hit &= (np.minimum(x, y) >= 0) & (np.maximum(x, y) < resolution)
    z = a[:, 2] + v * (b[:, 2] - a[:, 2]) + w * (c[:, 2] - a[:, 2])
    first_above = np.clip(np.ceil(z), 0, resolution).astype(int)
    # Going up through a triangle that faces down leads inside.
    turn = np.where(area < 0, 1, -1)
    np.add.at(crossings, (x[is_hit], y[is_hit], first_above[is_hit]), turn[is_hit])
    return np.cumsum(crossings, axis=2)[:, :, :resolution] > 0


def _clusters(centres: Float[np.ndarray, "n 3"]) -> list[Int[np.ndarray, " m"]]:
    """Groups of neighbouring triangles: halves of halves along the longest axis."""
    waiting, clusters = [np.arange(len(centres))], []
    while waiting:
        group = waiting.pop()
        if len(group) <= CLUSTER_SIZE:
            clusters.append(group)
            continue
        axis = int(np.ptp(centres[group], axis=0).argmax())
        order = group[np.argsort(centres[group, axis])]
        waiting += [order[: len(order) // 2], order[len(order) // 2 :]]
    return clusters


def _solid_angles(
    points: Float[np.ndarray, "p 3"], corners: Float[np.ndarray, "n 3 3"]
) -> Float[np.ndarray, "p n"]:
    """Signed solid angle of every triangle as seen from every point.

    Source:
        van Oosterom and Strackee, The solid angle of a plane triangle.
    """
    a, b, c = (corners[None, :, index] - points[:, None] for index in range(3))
    la, lb, lc = (np.linalg.norm(vector, axis=2) for vector in (a, b, c))
    triple = np.einsum("pnj,pnj->pn", a, np.cross(b, c))
    ab, bc, ca = (np.einsum("pnj,pnj->pn", p, q) for p, q in ((a, b), (b, c), (c, a)))
    return 2.0 * np.arctan2(triple, la * lb * lc + ab * lc + bc * la + ca * lb)
