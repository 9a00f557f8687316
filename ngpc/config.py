"""Typed settings, checked when they are made, and their spelling in tiny-cuda-nn's JSON.

A default lives in exactly one place, the dataclass, and is tiny-cuda-nn's own. Reading JSON
honours each key or refuses it by name; nothing is skipped in silence. ``otype`` and the names of
activations and interpolations are matched without regard to case, as tiny-cuda-nn does.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from ngpc.errors import ConfigError, MediaError, explain
from ngpc.shapes import (
    GRID_FEATURES,
    MAX_LEVELS,
    GridKind,
    GridLayout,
    grid_layout,
)

E = TypeVar("E", bound=StrEnum)


class Interpolation(StrEnum):
    """How a position between vertices mixes their features."""

    NEAREST = "nearest"
    LINEAR = "linear"
    SMOOTHSTEP = "smoothstep"


class Activation(StrEnum):
    """What a layer does to its sums. The last word on each is ``backends/reference/mlp.py``."""

    NONE = "None"
    RELU = "ReLU"
    LEAKY_RELU = "LeakyReLU"
    SILU = "SiLU"
    EXPONENTIAL = "Exponential"
    SINE = "Sine"
    SIGMOID = "Sigmoid"
    SQUAREPLUS = "Squareplus"
    SOFTPLUS = "Softplus"
    TANH = "Tanh"


class NetworkKind(StrEnum):
    """Which of tiny-cuda-nn's two perceptrons is meant; the function they compute is the same."""

    FULLY_FUSED = "FullyFusedMLP"
    CUTLASS = "CutlassMLP"


FULLY_FUSED_WIDTHS = (16, 32, 64, 128)


@dataclass(slots=True, kw_only=True)
class GridConfig:
    """A multi-resolution grid of trained features."""

    kind: GridKind = GridKind.HASH
    num_levels: int = 16
    features_per_level: int = 2
    log2_table_size: int = 19  # rows a hash level may have at most
    base_resolution: int = 16  # vertices along an axis of the coarsest level
    per_level_scale: float | None = None  # growth from level to level; None: see growth
    interpolation: Interpolation = Interpolation.LINEAR
    stochastic_interpolation: bool = False  # the table's gradient goes to one vertex of each cell

    def __post_init__(self) -> None:
        """Refuse what no grid can be."""
        self.kind = _member(GridKind, self.kind, "grid.kind")
        self.interpolation = _member(Interpolation, self.interpolation, "grid.interpolation")
        _check_range("grid.num_levels", self.num_levels, 1, MAX_LEVELS)
        _check_range("grid.log2_table_size", self.log2_table_size, 1, 31)
        _check_range("grid.base_resolution", self.base_resolution, 1, 2**20)
        if self.features_per_level not in GRID_FEATURES:
            raise ConfigError(
                explain(
                    "grid.features_per_level",
                    expected="1, 2, 4 or 8",
                    got=f"{self.features_per_level}",
                    do="Choose one of them; for more features use more levels.",
                )
            )
        if self.per_level_scale is not None and not 1.0 <= self.per_level_scale < math.inf:
            raise ConfigError(
                explain(
                    "grid.per_level_scale",
                    expected="a finite number of at least 1",
                    got=f"{self.per_level_scale}",
                    do="Use 1.0 for levels of equal resolution.",
                )
            )

    @property
    def growth(self) -> float:
        """``per_level_scale``, or where it is None tiny-cuda-nn's default for this kind.

        2 for hash and tiled grids; for dense grids what takes the finest level to 256.
        """
        if self.per_level_scale is not None:
            return self.per_level_scale
        if self.kind is not GridKind.DENSE:
            return 2.0
        if self.num_levels == 1:
            return 1.0
        return math.exp(math.log(256.0 / self.base_resolution) / (self.num_levels - 1))

    def layout(self, num_dims: int) -> GridLayout:
        """Where each level's entries lie, for positions of ``num_dims`` coordinates."""
        return grid_layout(
            kind=self.kind,
            num_dims=num_dims,
            num_levels=self.num_levels,
            features_per_level=self.features_per_level,
            log2_table_size=self.log2_table_size,
            base_resolution=self.base_resolution,
            per_level_scale=self.growth,
        )


@dataclass(slots=True, kw_only=True)
class FrequencyConfig:
    """Sines and cosines of each coordinate at octaves of half a period per unit."""

    num_frequencies: int = 12

    def __post_init__(self) -> None:
        """Refuse counts that no float can hold the octaves of."""
        _check_range("frequency.num_frequencies", self.num_frequencies, 1, 64)


@dataclass(slots=True, kw_only=True)
class TriangleWaveConfig:
    """Triangle waves of each coordinate at octaves of half a period per unit."""

    num_frequencies: int = 12

    def __post_init__(self) -> None:
        """Refuse counts that no float can hold the octaves of."""
        _check_range("triangle_wave.num_frequencies", self.num_frequencies, 1, 64)


@dataclass(slots=True, kw_only=True)
class OneBlobConfig:
    """A soft histogram of each coordinate over the unit interval."""

    num_bins: int = 16

    def __post_init__(self) -> None:
        """Refuse counts that are no power of two, as tiny-cuda-nn does."""
        _check_range("one_blob.num_bins", self.num_bins, 1, 2**16)
        if self.num_bins & (self.num_bins - 1):
            raise ConfigError(
                explain(
                    "one_blob.num_bins",
                    expected="a power of two",
                    got=f"{self.num_bins}",
                    do="16 is usual.",
                )
            )


@dataclass(slots=True, kw_only=True)
class SphericalHarmonicsConfig:
    """Real spherical harmonics of a direction given as ``(v + 1) / 2``."""

    degree: int = 4  # bands; degree ** 2 features

    def __post_init__(self) -> None:
        """Refuse degrees beyond tiny-cuda-nn's."""
        _check_range("spherical_harmonics.degree", self.degree, 1, 8)


@dataclass(slots=True, kw_only=True)
class IdentityConfig:
    """Each coordinate times ``scale`` plus ``offset``."""

    scale: float = 1.0
    offset: float = 0.0


class Reduction(StrEnum):
    """How the features of a composite's parts become one vector."""

    CONCATENATION = "Concatenation"
    SUM = "Sum"
    PRODUCT = "Product"


@dataclass(slots=True, kw_only=True)
class CompositePart:
    """One encoding of a composite, and the coordinates it reads."""

    encoding: EncodingConfig
    num_dims: int | None = None  # None, for one part at most: those that the others leave
    begin: int | None = None  # None: where the part before ends


@dataclass(slots=True, kw_only=True)
class CompositeConfig:
    """Encodings of different coordinates side by side, added or multiplied."""

    parts: tuple[CompositePart, ...]
    reduction: Reduction = Reduction.CONCATENATION

    def __post_init__(self) -> None:
        """Refuse a composite of nothing."""
        self.parts = tuple(self.parts)
        self.reduction = _member(Reduction, self.reduction, "composite.reduction")
        if not self.parts:
            raise ConfigError(
                explain(
                    "encoding.nested",
                    expected="at least one encoding",
                    got="none",
                    do="List the encodings.",
                )
            )

    def ranges(self, num_dims: int) -> tuple[tuple[int, int], ...]:
        """First coordinate and number of coordinates of each part, for ``num_dims`` in all.

        Raises:
            ConfigError: the parts do not fit into ``num_dims`` coordinates.
        """
        open_parts = sum(part.num_dims is None for part in self.parts)
        given = sum(part.num_dims or 0 for part in self.parts)
        if open_parts > 1 or (open_parts and any(part.begin is not None for part in self.parts)):
            raise ConfigError(
                explain(
                    "encoding.nested",
                    expected="n_dims_to_encode on every part, or on all but one and no "
                    "dims_to_encode_begin",
                    got=f"{open_parts} parts without it",
                    do="Write n_dims_to_encode.",
                )
            )
        ranges, begin = [], 0
        for part in self.parts:
            begin = begin if part.begin is None else part.begin
            size = num_dims - given if part.num_dims is None else part.num_dims
            if size < 0 or begin < 0 or begin + size > num_dims:
                raise ConfigError(
                    explain(
                        "encoding.nested",
                        expected=f"parts within {num_dims} coordinates",
                        got=f"coordinates {begin} to {begin + size}",
                        do="Correct n_dims_to_encode and dims_to_encode_begin.",
                    )
                )
            ranges.append((begin, size))
            begin += size
        return tuple(ranges)


EncodingConfig = (
    GridConfig
    | FrequencyConfig
    | TriangleWaveConfig
    | OneBlobConfig
    | SphericalHarmonicsConfig
    | IdentityConfig
    | CompositeConfig
)


@dataclass(slots=True, kw_only=True)
class MlpConfig:
    """A perceptron without biases."""

    kind: NetworkKind = NetworkKind.FULLY_FUSED
    width: int = 128  # neurons of each hidden layer
    num_hidden_layers: int = 5
    activation: Activation = Activation.RELU
    output_activation: Activation = Activation.NONE

    def __post_init__(self) -> None:
        """Refuse what the chosen kind cannot be."""
        self.kind = _member(NetworkKind, self.kind, "network.kind")
        self.activation = _member(Activation, self.activation, "network.activation")
        self.output_activation = _member(
            Activation, self.output_activation, "network.output_activation"
        )
        if self.kind is NetworkKind.FULLY_FUSED and self.width not in FULLY_FUSED_WIDTHS:
            raise ConfigError(
                explain(
                    "network.width",
                    expected="16, 32, 64 or 128 neurons for a FullyFusedMLP",
                    got=f"{self.width}",
                    do="Choose one of them, or use CutlassMLP, which takes any width.",
                )
            )
        least = 1 if self.kind is NetworkKind.FULLY_FUSED else 0
        _check_range("network.num_hidden_layers", self.num_hidden_layers, least, 1024)
        _check_range("network.width", self.width, 1, 2**16)


@dataclass(slots=True, kw_only=True)
class AdamConfig:
    """Adam; ``l2_reg`` adds that multiple of each matrix weight to its gradient."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    l2_reg: float = 1e-8

    def __post_init__(self) -> None:
        """Refuse numbers that make Adam diverge at once."""
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(
                    explain(
                        f"optimizer.{name}",
                        expected="a number in [0, 1)",
                        got=f"{getattr(self, name)}",
                        do="0.9 and 0.99 are usual.",
                    )
                )
        for name in ("learning_rate", "epsilon", "l2_reg"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    explain(
                        f"optimizer.{name}",
                        expected="a finite number of at least 0",
                        got=f"{getattr(self, name)}",
                        do="Correct it.",
                    )
                )


@dataclass(slots=True, kw_only=True)
class ImageFitConfig:
    """How an image becomes a field. The optimiser's numbers are those of instant-ngp."""

    encoding: EncodingConfig | None = None  # None: a hash grid scaled to the image
    network: MlpConfig = field(default_factory=lambda: MlpConfig(width=64, num_hidden_layers=2))
    optimizer: AdamConfig = field(
        default_factory=lambda: AdamConfig(
            learning_rate=1e-2, beta2=0.99, epsilon=1e-15, l2_reg=1e-6
        )
    )
    num_steps: int = 500
    batch_size: int = 8192  # pixels per step; a smaller image is used whole
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse counts that leave nothing to do."""
        _check_range("num_steps", self.num_steps, 1, 10**9)
        _check_range("batch_size", self.batch_size, 1, 2**24)
        _check_range("seed", self.seed, 0, 2**63 - 1)


def growth_to_reach(finest_resolution: int, *, base_resolution: int, num_levels: int) -> float:
    """The ``per_level_scale`` that takes ``num_levels`` from the base to the finest resolution."""
    if num_levels == 1 or finest_resolution <= base_resolution:
        return 1.0
    return math.exp(math.log(finest_resolution / base_resolution) / (num_levels - 1))


# --------------------------------------------------------------------------- tiny-cuda-nn's JSON

_GRID_OTYPES = {
    "grid": None,
    "hashgrid": GridKind.HASH,
    "tiledgrid": GridKind.TILED,
    "densegrid": GridKind.DENSE,
}
_NETWORK_OTYPES = {
    "fullyfusedmlp": NetworkKind.FULLY_FUSED,
    "megakernelmlp": NetworkKind.FULLY_FUSED,
    "cutlassmlp": NetworkKind.CUTLASS,
    "mlp": NetworkKind.CUTLASS,
}


def encoding_from_json(spec: Mapping[str, Any], *, is_strict: bool = True) -> EncodingConfig:
    """Read the ``encoding`` object of a tiny-cuda-nn configuration.

    Args:
        spec: The object.
        is_strict: Whether an unknown key is refused; tiny-cuda-nn itself skips them, and files of
            instant-ngp have some.

    Raises:
        ConfigError: an encoding, a key or a value that is not honoured here, by name.
    """
    return _encoding_from(_Reader("encoding", spec, is_strict=is_strict))


def _encoding_from(reader: _Reader) -> EncodingConfig:
    otype = reader.otype((*_GRID_OTYPES, *_OTHER_OTYPES))
    config = _grid_from(reader, otype) if otype in _GRID_OTYPES else _OTHER_OTYPES[otype](reader)
    reader.finish()
    return config


def _composite_from(reader: _Reader) -> CompositeConfig:
    nested = reader.sequence("nested")
    parts = []
    for part_index, spec in enumerate(nested):
        where = f"{reader.where}.nested[{part_index}]"
        part = _Reader(where, spec, is_strict=reader.is_strict)
        num_dims = part.integer("n_dims_to_encode", 0) if part.has("n_dims_to_encode") else None
        begin = (
            part.integer("dims_to_encode_begin", 0) if part.has("dims_to_encode_begin") else None
        )
        parts.append(CompositePart(encoding=_encoding_from(part), num_dims=num_dims, begin=begin))
    reduction = _member(
        Reduction, reader.text("reduction", "Concatenation"), f"{reader.where}.reduction"
    )
    return CompositeConfig(parts=tuple(parts), reduction=reduction)


_OTHER_OTYPES: dict[str, Callable[[_Reader], EncodingConfig]] = {
    "frequency": lambda reader: FrequencyConfig(
        num_frequencies=reader.integer("n_frequencies", 12)
    ),
    "trianglewave": lambda reader: TriangleWaveConfig(
        num_frequencies=reader.integer("n_frequencies", 12)
    ),
    "oneblob": lambda reader: OneBlobConfig(num_bins=reader.integer("n_bins", 16)),
    "sphericalharmonics": lambda reader: SphericalHarmonicsConfig(
        degree=reader.integer("degree", 4)
    ),
    "identity": lambda reader: IdentityConfig(
        scale=reader.number("scale", 1.0), offset=reader.number("offset", 0.0)
    ),
    "composite": _composite_from,
}


def _grid_from(reader: _Reader, otype: str) -> GridConfig:
    kind = _GRID_OTYPES[otype] or GridKind.HASH
    if reader.has("type"):
        name = reader.text("type", "Hash")
        kind = _member(GridKind, "tiled" if name.lower() == "tile" else name, "encoding.type")
    features_per_level = reader.integer("n_features_per_level", 2)
    num_levels = reader.integer("n_levels", 16)
    if reader.has("n_features"):
        if reader.has("n_levels"):
            raise ConfigError(
                explain(
                    "encoding",
                    expected="n_levels or n_features",
                    got="both",
                    do="Leave one out: n_features is n_levels times n_features_per_level.",
                )
            )
        num_features = reader.integer("n_features", 32)
        if num_features % features_per_level:
            raise ConfigError(
                explain(
                    "encoding.n_features",
                    expected=f"a multiple of n_features_per_level ({features_per_level})",
                    got=f"{num_features}",
                    do="Give n_levels instead.",
                )
            )
        num_levels = num_features // features_per_level
    reader.refuse_unless("fixed_point_pos", False)
    reader.refuse_unless("hash", "CoherentPrime")
    return GridConfig(
        kind=kind,
        num_levels=num_levels,
        features_per_level=features_per_level,
        log2_table_size=reader.integer("log2_hashmap_size", 19),
        base_resolution=reader.integer("base_resolution", 16),
        per_level_scale=reader.number("per_level_scale", None),
        interpolation=_member(
            Interpolation, reader.text("interpolation", "linear"), "encoding.interpolation"
        ),
        stochastic_interpolation=reader.flag("stochastic_interpolation", False),
    )


def encoding_to_json(config: EncodingConfig) -> dict[str, Any]:
    """The tiny-cuda-nn spelling of an encoding; the inverse of :func:`encoding_from_json`."""
    match config:
        case FrequencyConfig():
            return {"otype": "Frequency", "n_frequencies": config.num_frequencies}
        case TriangleWaveConfig():
            return {"otype": "TriangleWave", "n_frequencies": config.num_frequencies}
        case OneBlobConfig():
            return {"otype": "OneBlob", "n_bins": config.num_bins}
        case SphericalHarmonicsConfig():
            return {"otype": "SphericalHarmonics", "degree": config.degree}
        case IdentityConfig():
            return {"otype": "Identity", "scale": config.scale, "offset": config.offset}
        case CompositeConfig():
            return {
                "otype": "Composite",
                "reduction": config.reduction.value,
                "nested": [_part_to_json(part) for part in config.parts],
            }
        case GridConfig():
            spec = {
                "otype": "Grid",
                "type": config.kind.value.capitalize(),
                "n_levels": config.num_levels,
                "n_features_per_level": config.features_per_level,
                "log2_hashmap_size": config.log2_table_size,
                "base_resolution": config.base_resolution,
                "per_level_scale": config.growth,
                "interpolation": config.interpolation.value.capitalize(),
            }
            if config.stochastic_interpolation:
                spec["stochastic_interpolation"] = True
            return spec


def _part_to_json(part: CompositePart) -> dict[str, Any]:
    spec = encoding_to_json(part.encoding)
    if part.num_dims is not None:
        spec["n_dims_to_encode"] = part.num_dims
    if part.begin is not None:
        spec["dims_to_encode_begin"] = part.begin
    return spec


def network_from_json(spec: Mapping[str, Any], *, is_strict: bool = True) -> MlpConfig:
    """Read the ``network`` object of a tiny-cuda-nn configuration.

    Args:
        spec: The object.
        is_strict: Whether an unknown key is refused.

    Raises:
        ConfigError: a network, a key or a value that is not honoured here, by name.
    """
    reader = _Reader("network", spec, is_strict=is_strict)
    otype = reader.otype(tuple(_NETWORK_OTYPES))
    config = MlpConfig(
        kind=_NETWORK_OTYPES[otype],
        width=reader.integer("n_neurons", 128),
        num_hidden_layers=reader.integer("n_hidden_layers", 5),
        activation=_member(Activation, reader.text("activation", "ReLU"), "network.activation"),
        output_activation=_member(
            Activation, reader.text("output_activation", "None"), "network.output_activation"
        ),
    )
    reader.finish()
    return config


def network_to_json(config: MlpConfig) -> dict[str, Any]:
    """The tiny-cuda-nn spelling of a perceptron; the inverse of :func:`network_from_json`."""
    return {
        "otype": config.kind.value,
        "n_neurons": config.width,
        "n_hidden_layers": config.num_hidden_layers,
        "activation": config.activation.value,
        "output_activation": config.output_activation.value,
    }


def optimizer_from_json(spec: Mapping[str, Any]) -> AdamConfig:
    """Read the ``optimizer`` object of a tiny-cuda-nn configuration; Adam alone is honoured."""
    reader = _Reader("optimizer", spec)
    reader.otype(("adam",))
    defaults = AdamConfig()
    config = AdamConfig(
        **{
            name: reader.number(name, getattr(defaults, name))
            for name in ("learning_rate", "beta1", "beta2", "epsilon", "l2_reg")
        }
    )
    reader.finish()
    return config


def image_fit_from_json(spec: Mapping[str, Any]) -> ImageFitConfig:
    """Read a whole tiny-cuda-nn configuration: loss, optimizer, encoding, network.

    Parts that are missing keep the defaults of :class:`ImageFitConfig`.
    """
    reader = _Reader("configuration", spec)
    config = ImageFitConfig()
    if reader.has("loss"):
        loss = _Reader("loss", reader.mapping("loss"))
        loss.otype(("l2",))
        loss.finish()
    if reader.has("optimizer"):
        config.optimizer = optimizer_from_json(reader.mapping("optimizer"))
    if reader.has("encoding"):
        config.encoding = encoding_from_json(reader.mapping("encoding"))
    if reader.has("network"):
        config.network = network_from_json(reader.mapping("network"))
    reader.finish()
    return config


def read_json(path: Path) -> Mapping[str, Any]:
    """Read one JSON object from a file.

    Raises:
        MediaError: the file cannot be read.
        ConfigError: it is not a JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MediaError(
            explain(
                str(path),
                expected="a readable file",
                got=error.strerror or "none",
                do="Check the path.",
            )
        ) from error
    except ValueError as error:
        raise ConfigError(
            explain(str(path), expected="JSON", got=str(error), do="Correct the file.")
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(
            explain(
                str(path),
                expected="a JSON object with encoding and network",
                got=type(content).__name__,
                do="See configs/ngpc/image/base.json.",
            )
        )
    return content


class _Reader:
    """Hands out the values of one JSON object by type, and remembers what nobody asked for."""

    def __init__(self, where: str, spec: Mapping[str, Any], *, is_strict: bool = True) -> None:
        self.where = where
        self.is_strict = is_strict
        self.spec = spec
        self.asked = {"otype"} if where != "configuration" else set()

    def has(self, key: str) -> bool:
        self.asked.add(key)
        return key in self.spec

    def otype(self, known: tuple[str, ...]) -> str:
        name = self.spec.get("otype")
        if isinstance(name, str) and name.lower() in known:
            return name.lower()
        raise ConfigError(
            explain(
                f"{self.where}.otype",
                expected=f"one of {', '.join(known)}",
                got="nothing" if name is None else repr(name),
                do="These are the ones that exist in this version.",
            )
        )

    def integer(self, key: str, default: int) -> int:
        value = self._take(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return self._expect(key, value, "a whole number", lambda v: isinstance(v, int))

    def number(self, key: str, default: Any) -> Any:
        value = self._take(key, default)
        if value is None and key not in self.spec:
            return None
        value = self._expect(key, value, "a number", lambda v: isinstance(v, int | float))
        return float(value)

    def text(self, key: str, default: str) -> str:
        return self._expect(
            key, self._take(key, default), "a name in quotes", lambda v: isinstance(v, str)
        )

    def mapping(self, key: str) -> Mapping[str, Any]:
        return self._expect(
            key, self._take(key, None), "a JSON object", lambda v: isinstance(v, Mapping)
        )

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key, default)
        if isinstance(value, bool):
            return value
        raise ConfigError(
            explain(
                f"{self.where}.{key}",
                expected="true or false",
                got=json.dumps(value),
                do="Correct the value.",
            )
        )

    def sequence(self, key: str) -> list[Mapping[str, Any]]:
        value = self._take(key, None)
        if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
            return value
        raise ConfigError(
            explain(
                f"{self.where}.{key}",
                expected="a list of JSON objects",
                got="nothing" if value is None else type(value).__name__,
                do="Give one object per encoding.",
            )
        )

    def refuse_unless(self, key: str, only: Any) -> None:
        value = self._take(key, only)
        same = value.lower() == only.lower() if _both_text(value, only) else value == only
        if not same:
            raise ConfigError(
                explain(
                    f"{self.where}.{key}",
                    expected=f"{json.dumps(only)}, the only one that exists in this version",
                    got=json.dumps(value),
                    do="Remove the key.",
                )
            )

    def finish(self) -> None:
        for key in self.spec:
            if self.is_strict and key not in self.asked:
                near = difflib.get_close_matches(key, self.asked, n=1, cutoff=0.0)
                raise ConfigError(
                    explain(
                        f"{self.where}",
                        expected=f"keys out of {', '.join(sorted(self.asked))}",
                        got=repr(key),
                        do=f"Did you mean {near[0]!r}?" if near else "Remove it.",
                    )
                )

    def _take(self, key: str, default: Any) -> Any:
        self.asked.add(key)
        return self.spec.get(key, default)

    def _expect(self, key: str, value: Any, kind: str, fits: Callable[[Any], bool]) -> Any:
        if fits(value) and not isinstance(value, bool):
            return value
        raise ConfigError(
            explain(
                f"{self.where}.{key}", expected=kind, got=json.dumps(value), do="Correct the value."
            )
        )


def _both_text(a: Any, b: Any) -> bool:
    return isinstance(a, str) and isinstance(b, str)


def _member(kind: type[E], value: Any, where: str) -> E:
    """The member of ``kind`` called ``value``, whatever its case."""
    for member in kind:
        if str(value).lower() == member.value.lower():
            return member
    raise ConfigError(
        explain(
            where,
            expected=f"one of {', '.join(kind)}",
            got=repr(value),
            do="These are the ones that exist in this version.",
        )
    )


def _check_range(where: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(
            explain(
                where,
                expected=f"a whole number from {least} to {most}",
                got=f"{value}",
                do="Correct it.",
            )
        )
