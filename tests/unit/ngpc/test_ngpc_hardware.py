"""The model of the NGPC cluster, against the figures it must reproduce and those it must not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ngpc.cli.main import main
from ngpc.config import GridConfig
from ngpc.errors import ConfigError
from ngpc.hardware.model import (
    Breakdown,
    NGPCModel,
    Workload,
    fits_grid_sram,
    fitted_plateaus,
    fitted_speedups,
    layer_passes,
    rest_ceiling,
)
from ngpc.hardware.published import PUBLISHED, Evidence
from ngpc.hardware.report import UNCONFIRMED_INPUT, ReportLine, report_lines

LINES = {line.name: line for line in report_lines()}


def model_of(name: str) -> float:
    value = LINES[name].model
    assert value is not None
    return value


def test_the_gap_at_4k60() -> None:
    assert model_of("gap at 4k60, largest") == pytest.approx(55.50, rel=0.002)
    assert model_of("gap at 4k60, smallest") == pytest.approx(1.51, rel=0.01)
    assert UNCONFIRMED_INPUT in LINES["gap at 4k60, smallest"].note


@pytest.mark.parametrize(
    ("share", "ceiling"),
    [("hashgrid", 36.0), ("densegrid", 24.9), ("low_resolution_densegrid", 24.8)],
)
def test_ceilings(share: str, ceiling: float) -> None:
    assert rest_ceiling(PUBLISHED[f"share_{share}"].value) == pytest.approx(ceiling, abs=0.1)


@pytest.mark.parametrize("size", [8, 64])
@pytest.mark.parametrize("name", ["area", "power"])
def test_area_and_power(name: str, size: int) -> None:
    line = LINES[f"{name}, N={size}"]
    assert line.deviation_percent == pytest.approx(0.0, abs=0.5)


@pytest.mark.parametrize("size", [8, 16, 32])
def test_published_inputs_do_not_give_the_ladder(size: int) -> None:
    assert LINES[f"speed-up, N={size}, published"].model is None
    with pytest.raises(ConfigError, match="not published"):
        NGPCModel(num_processors=size).frame_time(Breakdown(encoding_s=1.0, mlp_s=1.0, rest_s=1.0))


@pytest.mark.parametrize(("size", "mean"), [(8, 12), (16, 20), (32, 33), (64, 39)])
def test_the_fit_has_the_published_means(size: int, mean: float) -> None:
    assert sum(fitted_speedups(size).values()) / 4 == pytest.approx(mean, rel=1e-6)


def test_the_plateaus_have_the_published_mean_share() -> None:
    shares = [1 - 9.94 / plateau for plateau in fitted_plateaus().values()]
    assert sum(shares) / 4 == pytest.approx(0.7237, rel=1e-9)
    assert max(fitted_plateaus().values()) == 58


def test_reach() -> None:
    reach = [line for line in report_lines() if line.name.startswith("reach")]
    assert [round(line.model or 0, 1) for line in reach] == [27.7, 53.5, 12.1, 4.1]
    assert all("holds" in line.note for line in reach)


def test_no_unconfirmed_figure_is_the_papers() -> None:
    assert all(figure.evidence is not Evidence.UNCONFIRMED for figure in PUBLISHED.values())
    recalled = {6.32, 27.87, 12.94, 20.85, 33.73, 39.04, 58.36, 379, 2353, 1070, 1451}
    assert not recalled & {figure.value for figure in PUBLISHED.values()}
    assert not recalled & {line.paper for line in report_lines()}


def test_deviation() -> None:
    line = ReportLine(name="a", paper=2.0, model=3.0, unit="x", note="")
    assert line.deviation_percent == pytest.approx(50.0)


def test_published_at_64_is_bound_by_the_slowest_part() -> None:
    model = NGPCModel(num_processors=64)
    frame = model.frame_time(Breakdown(encoding_s=246.0, mlp_s=0.0, rest_s=0.0))
    assert frame.seconds == pytest.approx(1.0)
    assert frame.bound_by == "encoding"
    frame = model.frame_time(Breakdown(encoding_s=1.0, mlp_s=1.0, rest_s=9.94))
    assert frame.seconds == pytest.approx(1.0)
    assert frame.bound_by == "rest"


def test_cycles() -> None:
    model = NGPCModel(num_processors=8, calibration="cycle", clock_hz=1e9)
    breakdown = Breakdown(encoding_s=1.0, mlp_s=1.0, rest_s=0.0)
    workload = Workload(num_samples=8_000_000, num_levels=8, layer_widths=(32, 64, 64, 3))
    assert model.frame_time(breakdown, workload=workload).seconds == pytest.approx(3e-3)
    workload = Workload(num_samples=8_000_000, num_levels=16, layer_widths=(32, 64))
    assert model.frame_time(breakdown, workload=workload).seconds == pytest.approx(1e-3)
    with pytest.raises(ConfigError, match="workload"):
        model.frame_time(breakdown)
    with pytest.raises(ConfigError, match="clock_hz"):
        NGPCModel(num_processors=8, calibration="cycle")


def test_layers_wider_than_the_array_take_more_passes() -> None:
    assert layer_passes((32, 64, 16)) == 2
    assert layer_passes((65, 128)) == 4


def test_levels_that_fit_the_grid_memory() -> None:
    grid = GridConfig(
        num_levels=16,
        features_per_level=2,
        log2_table_size=19,
        base_resolution=16,
        per_level_scale=1.5,
    )
    levels = fits_grid_sram(grid.layout(3))
    assert levels[0].fits_grid_sram
    assert levels[0].size_bytes == 16**3 * 4
    assert not levels[-1].fits_grid_sram
    assert levels[-1].size_bytes == 2**21


def test_report_in_print_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "--report"]) == 0
    text = capsys.readouterr().out
    assert text.count("not derivable") == 3
    code = "import sys; from ngpc.cli.main import main; main(['hardware', '--report']); "
    code += "sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_measured_breakdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "frames.json"
    path.write_text(json.dumps({"gia": {"encoding_s": 0.4, "mlp_s": 0.3, "rest_s": 0.2982}}))
    assert main(["hardware", "--breakdown", str(path)]) == 0
    assert "998.2 ms -> 30 ms, 33.3x, bound by rest" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    ["[]", "{", '{"a": {"encoding_s": 1}}', '{"a": {"encoding_s": -1, "mlp_s": 0, "rest_s": 0}}'],
)
def test_a_breakdown_that_is_none(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "frames.json"
    path.write_text(content)
    assert main(["hardware", "--breakdown", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
