"""Typed settings and tiny-cuda-nn's JSON: honoured or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ngpc.config import (
    Activation,
    AdamConfig,
    CompositeConfig,
    CompositePart,
    EncodingConfig,
    FrequencyConfig,
    GridConfig,
    IdentityConfig,
    ImageFitConfig,
    Interpolation,
    MlpConfig,
    NetworkKind,
    OneBlobConfig,
    Reduction,
    SphericalHarmonicsConfig,
    TriangleWaveConfig,
    encoding_from_json,
    encoding_to_json,
    growth_to_reach,
    image_fit_from_json,
    network_from_json,
    network_to_json,
    optimizer_from_json,
    read_json,
)
from ngpc.errors import ConfigError, MediaError
from ngpc.shapes import GridKind


def test_empty_objects_give_the_defaults_of_tiny_cuda_nn() -> None:
    assert encoding_from_json({"otype": "Grid"}) == GridConfig()
    assert network_from_json({"otype": "FullyFusedMLP"}) == MlpConfig()
    assert optimizer_from_json({"otype": "Adam"}) == AdamConfig()


@pytest.mark.parametrize(
    ("otype", "kind"),
    [
        ("HashGrid", GridKind.HASH),
        ("hashgrid", GridKind.HASH),
        ("TiledGrid", GridKind.TILED),
        ("DENSEGRID", GridKind.DENSE),
    ],
)
def test_otype_is_read_whatever_its_case(otype: str, kind: GridKind) -> None:
    assert encoding_from_json({"otype": otype}) == GridConfig(kind=kind)


def test_type_wins_over_otype() -> None:
    assert encoding_from_json({"otype": "Grid", "type": "Tiled"}).kind is GridKind.TILED
    assert encoding_from_json({"otype": "HashGrid", "type": "tile"}).kind is GridKind.TILED


def test_parts_of_a_composite_take_their_coordinates() -> None:
    part = {"otype": "Identity"}
    spec = {"otype": "composite", "nested": [{**part, "n_dims_to_encode": 3}, part]}
    config = encoding_from_json(spec)
    assert config.ranges(5) == ((0, 3), (3, 2))
    with pytest.raises(ConfigError, match="parts within 2 coordinates, got coordinates 0 to 3"):
        config.ranges(2)
    with pytest.raises(ConfigError, match="got 2 parts without it"):
        encoding_from_json({"otype": "Composite", "nested": [part, part]}).ranges(5)
    overlapping = [
        {**part, "n_dims_to_encode": 2, "dims_to_encode_begin": begin} for begin in (1, 0)
    ]
    config = encoding_from_json({"otype": "Composite", "nested": overlapping})
    assert config.ranges(3) == ((1, 2), (0, 2))


def test_n_features_stands_for_levels() -> None:
    spec = {"otype": "Grid", "n_features": 32, "n_features_per_level": 4}
    assert encoding_from_json(spec).num_levels == 8
    with pytest.raises(ConfigError, match="got both"):
        encoding_from_json({**spec, "n_levels": 8})
    with pytest.raises(ConfigError, match=r"multiple of n_features_per_level \(4\), got 30"):
        encoding_from_json({**spec, "n_features": 30})


def test_dense_grids_end_at_256_vertices_unless_told_otherwise() -> None:
    config = encoding_from_json({"otype": "DenseGrid", "n_levels": 5})
    resolutions = [level.resolution for level in config.layout(2).levels]
    assert resolutions == [16, 32, 64, 128, 256]
    assert GridConfig(kind=GridKind.DENSE, num_levels=1).growth == 1.0
    assert encoding_from_json({"otype": "DenseGrid", "per_level_scale": 1.405}).growth == 1.405


@pytest.mark.parametrize("config", [
    GridConfig(stochastic_interpolation=True, per_level_scale=1.5),
    TriangleWaveConfig(num_frequencies=5),
    OneBlobConfig(num_bins=32),
    SphericalHarmonicsConfig(degree=3),
    IdentityConfig(scale=2.0, offset=-1.0),
    CompositeConfig(
        parts=(
            CompositePart(encoding=IdentityConfig(), num_dims=3, begin=1),
            CompositePart(encoding=SphericalHarmonicsConfig()),
        ),
        reduction=Reduction.SUM,
    ),
    GridConfig(kind=GridKind.TILED, num_levels=3, features_per_level=8, log2_table_size=12,
               base_resolution=9, per_level_scale=1.25, interpolation=Interpolation.SMOOTHSTEP),
    FrequencyConfig(num_frequencies=7),
])  # fmt: skip
def test_encodings_survive_the_round_trip(config: EncodingConfig) -> None:
    assert encoding_from_json(json.loads(json.dumps(encoding_to_json(config)))) == config


@pytest.mark.parametrize("activation", list(Activation))
def test_networks_survive_the_round_trip(activation: Activation) -> None:
    config = MlpConfig(
        kind=NetworkKind.CUTLASS,
        width=40,
        num_hidden_layers=0,
        activation=activation,
        output_activation=Activation.SIGMOID,
    )
    assert network_from_json(json.loads(json.dumps(network_to_json(config)))) == config


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"otype": "TwoBlobs"}, r"encoding\.otype: expected one of .*oneblob.*, got 'TwoBlobs'"),
        ({}, r"encoding\.otype: .* got nothing"),
        ({"otype": "Grid", "n_level": 8}, "got 'n_level'. Did you mean 'n_levels'"),
        ({"otype": "Grid", "stochastic_interpolation": 1}, "stochastic_interpolation.*got 1"),
        ({"otype": "Grid", "fixed_point_pos": True}, "fixed_point_pos.*false"),
        ({"otype": "OneBlob", "n_bins": 12}, "a power of two, got 12"),
        ({"otype": "SphericalHarmonics", "degree": 9}, "from 1 to 8, got 9"),
        ({"otype": "Composite"}, "nested: expected a list of JSON objects, got nothing"),
        ({"otype": "Composite", "nested": []}, "nested: expected at least one encoding"),
        (
            {"otype": "Composite", "nested": [{"otype": "Identity", "degree": 4}]},
            r"encoding.nested\[0\]: .* got 'degree'",
        ),
        ({"otype": "Composite", "nested": [{"otype": "Identity"}], "reduction": "Max"}, "'Max'"),
        ({"otype": "Grid", "hash": "Prime"}, '"CoherentPrime".*got "Prime"'),
        ({"otype": "Grid", "n_levels": "8"}, "n_levels: expected a whole number"),
        ({"otype": "Grid", "n_levels": True}, "n_levels: expected a whole number, got true"),
        ({"otype": "Grid", "n_levels": 0}, "from 1 to 128, got 0"),
        ({"otype": "Grid", "n_features_per_level": 3}, "1, 2, 4 or 8, got 3"),
        ({"otype": "Grid", "per_level_scale": 0.5}, "at least 1, got 0.5"),
        ({"otype": "Grid", "interpolation": "Cubic"}, "nearest, linear, smoothstep, got 'Cubic'"),
        ({"otype": "Frequency", "n_levels": 3}, "got 'n_levels'"),
    ],
)
def test_an_encoding_that_cannot_be_honoured_is_refused_by_name(spec: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        encoding_from_json(spec)


def test_values_that_only_spell_the_default_are_honoured() -> None:
    spec = {"otype": "Grid", "stochastic_interpolation": False, "hash": "coherentprime"}
    assert encoding_from_json(spec) == GridConfig()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"otype": "FullyFusedMLP", "n_neurons": 48}, "16, 32, 64 or 128 .* got 48.*CutlassMLP"),
        ({"otype": "FullyFusedMLP", "n_hidden_layers": 0}, "from 1 to 1024, got 0"),
        ({"otype": "MLP", "activation": "GELU"}, "got 'GELU'"),
        ({"otype": "CutlassResNet"}, "got 'CutlassResNet'"),
        ({"otype": "MLP", "bias": True}, "got 'bias'"),
    ],
)
def test_a_network_that_cannot_be_honoured_is_refused_by_name(spec: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        network_from_json(spec)


def test_a_configuration_keeps_defaults_for_missing_parts() -> None:
    config = image_fit_from_json({"encoding": {"otype": "Frequency"}})
    assert config.encoding == FrequencyConfig()
    assert config.network == ImageFitConfig().network


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"loss": {"otype": "RelativeL2"}}, "loss.otype: expected one of l2"),
        ({"optimizer": {"otype": "Ema", "nested": {}}}, "optimizer.otype: expected one of adam"),
        ({"optimizer": {"otype": "Adam", "beta1": 1.0}}, r"beta1: expected a number in \[0, 1\)"),
        ({"optimiser": {"otype": "Adam"}}, "got 'optimiser'. Did you mean 'optimizer'"),
        ({"network": 3}, "network: expected a JSON object, got 3"),
    ],
)
def test_other_losses_and_optimizers_are_refused_by_name(spec: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        image_fit_from_json(spec)


def test_every_shipped_configuration_is_read(repository: Path) -> None:
    paths = sorted((repository / "configs" / "ngpc").rglob("*.json"))
    assert [path.name for path in paths] == ["base.json", "frequency.json"]
    for path in paths:
        config = image_fit_from_json(read_json(path))
        assert config.encoding is not None


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"absent.json: expected a readable file"):
        read_json(tmp_path / "absent.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(ConfigError, match=r"broken.json: expected JSON"):
        read_json(broken)
    broken.write_text("[1]")
    with pytest.raises(ConfigError, match=r"a JSON object .* got list"):
        read_json(broken)


def test_growth_reaches_the_finest_resolution() -> None:
    growth = growth_to_reach(512, base_resolution=16, num_levels=16)
    assert growth == pytest.approx(1.259921, abs=1e-6)
    assert growth_to_reach(8, base_resolution=16, num_levels=16) == 1.0
    assert growth_to_reach(99, base_resolution=16, num_levels=1) == 1.0
