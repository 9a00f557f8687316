"""The renderer's parts against answers known by other means."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_transfer.training.scenes.noise import TILE_SIZE, build_tile, fractal_noise
from cosmos_transfer.training.scenes.patterns import stripe_cover
from cosmos_transfer.training.scenes.primitives import Finish, Primitive, Shape, cross, place
from cosmos_transfer.training.scenes.robot import build_arm, draw_arm

PLAIN = Finish("box", "object", (0.5, 0.5, 0.5))


def one_ray(primitive: Primitive, origin: tuple, direction: tuple) -> tuple[float, float, int]:
    as_rays = [
        tuple(np.array([value], dtype=np.float32) for value in v) for v in (origin, direction)
    ]
    crossing = cross(primitive, *as_rays)
    face = np.broadcast_to(crossing.face, 1)
    return float(crossing.entry[0]), float(crossing.leave[0]), int(face[0])


@pytest.mark.parametrize(
    ("shape", "half_size", "entry", "leave"),
    [
        (Shape.BOX, (1.0, 2.0, 3.0), 4.0, 6.0),
        (Shape.SPHERE, (1.5, 1.5, 1.5), 3.5, 6.5),
        (Shape.CYLINDER, (0.5, 0.5, 2.0), 4.5, 5.5),
    ],
)
def test_a_ray_along_x_enters_and_leaves_where_it_should(
    shape: Shape, half_size: tuple, entry: float, leave: float
) -> None:
    solid = place(shape, half_size, (0.0, 0.0, 0.0), PLAIN)
    got_entry, got_leave, face = one_ray(solid, (-5.0, 0.0, 0.0), (1.0, 0.0, 0.0))
    assert (got_entry, got_leave) == pytest.approx((entry, leave), rel=1e-6)
    assert face == (1 if shape is Shape.BOX else 0)


@pytest.mark.parametrize("shape", [Shape.BOX, Shape.SPHERE, Shape.CYLINDER])
def test_a_ray_that_passes_by_misses(shape: Shape) -> None:
    solid = place(shape, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), PLAIN)
    assert one_ray(solid, (-5.0, 0.0, 1.5), (1.0, 0.0, 0.0))[0] == np.inf


def test_a_full_taper_makes_a_ridge() -> None:
    """Half way up a gable roof only half the width is left."""
    roof = place(Shape.BOX, (2.0, 3.0, 1.0), (0.0, 0.0, 0.0), PLAIN, taper=(1.0, 0.0))
    entry, leave, face = one_ray(roof, (-5.0, 0.0, 0.0), (1.0, 0.0, 0.0))
    assert (entry, leave, face) == (pytest.approx(4.0), pytest.approx(6.0), 1)


def test_a_box_is_a_tapered_box_without_taper() -> None:
    rng = np.random.default_rng(0)
    origin = tuple(rng.normal(size=(3, 400)).astype(np.float32) * 0.5 + 4.0)
    direction = tuple(rng.normal(size=(3, 400)).astype(np.float32) * 0.4 - 1.0)
    straight, tapered = (
        place(Shape.BOX, (1.0, 1.5, 2.0), (0.0, 0.0, 0.0), PLAIN, taper=(taper, taper))
        for taper in (0.0, 1e-9)
    )
    expected, got = cross(straight, origin, direction), cross(tapered, origin, direction)
    hits = np.isfinite(expected.entry)
    assert 0.1 < hits.mean() < 0.9
    np.testing.assert_allclose(got.entry[hits], expected.entry[hits], rtol=1e-4)
    np.testing.assert_array_equal(np.broadcast_to(got.face, 400)[hits], expected.face[hits])


def test_stripes_average_to_their_share_over_whole_periods() -> None:
    at = np.linspace(-3.0, 7.0, 50, dtype=np.float32)
    cover = stripe_cover(at, np.full(50, 6.0, dtype=np.float32), period=2.0, width=0.5)
    np.testing.assert_allclose(cover, 0.25, atol=1e-5)


def test_stripes_are_sharp_for_a_tiny_footprint() -> None:
    at = np.array([0.25, 0.75, 2.25, -0.25, -1.75], dtype=np.float32)
    cover = stripe_cover(at, np.zeros(5, dtype=np.float32), period=2.0, width=0.5)
    np.testing.assert_allclose(cover, [1, 0, 1, 0, 1], atol=1e-3)


def test_a_tile_fades_to_its_mean_under_a_large_footprint() -> None:
    image = fractal_noise(np.random.default_rng(0), 4, 4)
    tile = build_tile(image)
    at = np.random.default_rng(1).random((2, 300)).astype(np.float32) * 5
    spread = [
        float(tile.sample(at[0], at[1], np.full(300, footprint, dtype=np.float32)).std())
        for footprint in (1.0 / TILE_SIZE, 0.1, 1.0)
    ]
    assert spread[0] > spread[1] > spread[2]
    assert spread[2] < 0.05 * spread[0]


def test_a_tile_repeats_at_every_integer() -> None:
    tile = build_tile(fractal_noise(np.random.default_rng(0), 4, 4))
    at = np.random.default_rng(1).random((2, 100)).astype(np.float32)
    footprint = np.full(100, 0.01, dtype=np.float32)
    here, there = tile.sample(*at, footprint), tile.sample(at[0] + 3, at[1] - 2, footprint)
    np.testing.assert_allclose(here, there, atol=1e-3)


def test_the_links_of_the_arm_keep_their_lengths() -> None:
    rng = np.random.default_rng(3)
    arm = draw_arm(rng, 1.0, 0.6)
    way = np.linspace(0.0, 1.0, 7)[:, None]
    tool = arm.base + [0.0, -0.5, 0.1] + way * np.array([0.2, -0.1, 0.2])
    parts = build_arm(arm, tool, half_grip=0.05)
    shoulder, elbow, wrist = (part.position for part in parts if part.shape is Shape.SPHERE)
    np.testing.assert_allclose(np.linalg.norm(elbow - shoulder, axis=-1), arm.upper, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(wrist - elbow, axis=-1), arm.fore, rtol=1e-5)
