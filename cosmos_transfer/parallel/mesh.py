"""How many processes do what: the shape of the mesh.

``guidance``  1 or 2: the two passes of guidance on two groups
``control``   branches of the controls on different groups
``ring``      tokens in a ring: keys and values go round; for links between nodes
``ulysses``   tokens exchanged for heads before attention and back; for links within a node
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from cosmos_transfer.errors import ConfigError, explain


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshShape:
    """Processes along each axis; the last axis varies fastest from rank to rank."""

    guidance: int = 1
    control: int = 1
    ring: int = 1
    ulysses: int = 1

    @property
    def size(self) -> int:
        """How many processes."""
        return self.guidance * self.control * self.ring * self.ulysses

    @property
    def context(self) -> int:
        """Over how many processes the tokens go."""
        return self.ring * self.ulysses

    def __str__(self) -> str:
        """The equation with its numbers."""
        product = " x ".join(f"{name} {count}" for name, count in asdict(self).items())
        return f"{product} = {self.size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What choosing a mesh needs to know of a checkpoint and a request."""

    num_heads: int | None  # of a network whose tokens can be divided; None where they cannot
    num_controls: int
    is_guided: bool


def check_mesh(shape: MeshShape, num_processes: int, facts: ModelFacts) -> MeshShape:
    """The shape, or an error that shows the equation with its numbers.

    Raises:
        ConfigError: It does not come to the number of processes, or has an axis that nothing can
            be divided along.
    """
    if min(asdict(shape).values()) < 1 or shape.size != num_processes:
        raise _wrong(
            f"guidance x control x ring x ulysses = {num_processes} processes",
            str(shape),
            "Change the mesh, or start as many processes.",
        )
    if shape.guidance not in (1, 2) or (shape.guidance == 2 and not facts.is_guided):
        raise _wrong(
            "guidance 1 or 2, and 2 only with a guidance_scale above 1",
            f"guidance {shape.guidance}"
            + ("" if facts.is_guided else ", guidance_scale 1: there is one pass"),
            "Set parallel.guidance=1.",
        )
    if shape.control > max(1, facts.num_controls):
        raise _wrong(
            f"control at most the number of controls ({facts.num_controls})",
            f"control {shape.control}",
            "Lower parallel.control.",
        )
    if shape.context > 1 and facts.num_heads is None:
        raise _wrong(
            "ring 1 and ulysses 1 with this checkpoint: its networks are convolutions, not tokens",
            f"ring {shape.ring} x ulysses {shape.ulysses}",
            "Use parallel.guidance and parallel.control.",
        )
    if facts.num_heads is not None and shape.ulysses > facts.num_heads:
        raise _wrong(
            f"ulysses at most the number of heads ({facts.num_heads})",
            f"ulysses {shape.ulysses}",
            f"Use ulysses {facts.num_heads} and put the rest into ring or guidance.",
        )
    return shape


def choose_mesh(num_processes: int, facts: ModelFacts) -> MeshShape:
    """The mesh for a request, unless one is asked for.

    Guidance first: its traffic is one exchange of latents a step. Then heads, where there are any;
    then a ring; and for networks without tokens, the controls.

    Raises:
        ConfigError: More processes than this request can use.
    """
    guidance = 2 if facts.is_guided and num_processes % 2 == 0 else 1
    left = num_processes // guidance
    if facts.num_heads is None:
        return check_mesh(MeshShape(guidance=guidance, control=left), num_processes, facts)
    ulysses = max(n for n in range(1, min(left, facts.num_heads) + 1) if left % n == 0)
    shape = MeshShape(guidance=guidance, ulysses=ulysses, ring=left // ulysses)
    return check_mesh(shape, num_processes, facts)


def _wrong(expected: str, got: str, do: str) -> ConfigError:
    return ConfigError(explain("parallel", expected=expected, got=got, do=do))
