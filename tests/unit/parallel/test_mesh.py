from __future__ import annotations

import pytest

from cosmos_transfer.errors import ConfigError
from cosmos_transfer.parallel.mesh import MeshShape, ModelFacts, check_mesh, choose_mesh

TOKENS = ModelFacts(num_heads=16, num_controls=2, is_guided=True)
CONVOLUTIONS = ModelFacts(num_heads=None, num_controls=2, is_guided=True)


@pytest.mark.parametrize(
    ("count", "facts", "expected"),
    [
        (1, TOKENS, MeshShape()),
        (2, TOKENS, MeshShape(guidance=2)),
        (3, TOKENS, MeshShape(ulysses=3)),
        (4, TOKENS, MeshShape(guidance=2, ulysses=2)),
        (32, TOKENS, MeshShape(guidance=2, ulysses=16)),
        (64, TOKENS, MeshShape(guidance=2, ulysses=16, ring=2)),
        (2, ModelFacts(num_heads=16, num_controls=1, is_guided=False), MeshShape(ulysses=2)),
        (2, CONVOLUTIONS, MeshShape(guidance=2)),
        (4, CONVOLUTIONS, MeshShape(guidance=2, control=2)),
    ],
)
def test_a_mesh_is_chosen_for_a_request(count, facts, expected):
    assert choose_mesh(count, facts) == expected


@pytest.mark.parametrize(
    ("shape", "facts", "message"),
    [
        (
            MeshShape(guidance=2, ulysses=3),
            TOKENS,
            "= 4 processes, got guidance 2 x control 1 x ring 1 x ulysses 3 = 6",
        ),
        (MeshShape(guidance=4), TOKENS, "guidance 4"),
        (
            MeshShape(guidance=2, control=2),
            ModelFacts(num_heads=16, num_controls=2, is_guided=False),
            "there is one pass",
        ),
        (MeshShape(control=4), TOKENS, r"number of controls \(2\), got control 4"),
        (MeshShape(ring=2, ulysses=2), CONVOLUTIONS, "ring 2 x ulysses 2"),
        (
            MeshShape(ulysses=4),
            ModelFacts(num_heads=3, num_controls=2, is_guided=True),
            r"heads \(3\), got ulysses 4",
        ),
        (MeshShape(guidance=0, ulysses=4), TOKENS, "= 0"),
    ],
)
def test_a_mesh_that_cannot_be_shows_its_equation(shape, facts, message):
    with pytest.raises(ConfigError, match=message):
        check_mesh(shape, 4, facts)


def test_more_processes_than_a_request_can_use_are_refused():
    with pytest.raises(ConfigError, match="number of controls"):
        choose_mesh(8, CONVOLUTIONS)
