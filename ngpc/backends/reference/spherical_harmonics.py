"""Real spherical harmonics of a direction."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def encode_spherical_harmonics(
    directions: Float[Tensor, "p 3"], *, degree: int
) -> Float[Tensor, "p d"]:
    """Evaluate the ``degree ** 2`` real harmonics of bands below ``degree``.

    Directions come as ``(v + 1) / 2``, in the unit cube, as all positions do. Within band ``l``
    the order ``m`` runs from ``-l`` to ``l``; signs carry the Condon-Shortley phase. Directions
    that are not of length one give the same polynomials, with the Legendre part in ``z`` alone.

    Source:
        Sloan, Stupid spherical harmonics tricks, appendix A1; order and signs are those of
        tiny-cuda-nn, ``sh_enc``.
    """
    x, y, z = (2.0 * directions - 1.0).unbind(dim=1)
    harmonics: dict[tuple[int, int], Tensor] = {}
    cosine, sine = torch.ones_like(x), torch.zeros_like(x)  # of m times the azimuth, times r^m
    for m in range(degree):
        legendre_before, legendre = torch.zeros_like(z), torch.ones_like(z) * _diagonal(m)
        for band in range(m, degree):
            scale = _normalisation(band, m)
            harmonics[band, m] = scale * legendre * cosine
            if m > 0:
                harmonics[band, -m] = scale * legendre * sine
            following = ((2 * band + 1) * z * legendre - (band + m) * legendre_before) / (
                band + 1 - m
            )
            legendre_before, legendre = legendre, following
        cosine, sine = x * cosine - y * sine, x * sine + y * cosine
    ordered = [harmonics[band, m] for band in range(degree) for m in range(-band, band + 1)]
    return torch.stack(ordered, dim=1)


def _diagonal(m: int) -> float:
    """The associated Legendre polynomial of band ``m`` and order ``m`` without its sine."""
    return (-1.0) ** m * math.prod(range(1, 2 * m, 2))


def _normalisation(band: int, m: int) -> float:
    square = (2 * band + 1) / (4.0 * math.pi)
    square *= math.factorial(band - m) / math.factorial(band + m)
    return math.sqrt(square) * (math.sqrt(2.0) if m > 0 else 1.0)
