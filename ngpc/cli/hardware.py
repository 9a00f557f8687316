"""``ngpc hardware``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ngpc.errors import ConfigError, MediaError, explain
from ngpc.hardware.model import Breakdown, NGPCModel
from ngpc.hardware.report import NOT_DERIVABLE, report_lines

PARTS = ("encoding_s", "mlp_s", "rest_s")


def hardware_command(arguments: argparse.Namespace) -> int:
    """Print the report, or what a cluster would give for a measured frame."""
    if arguments.report:
        _print_report()
        return 0
    model = NGPCModel(num_processors=arguments.processors, calibration=arguments.calibration)
    for name, breakdown in read_breakdowns(arguments.breakdown).items():
        frame = model.frame_time(breakdown)
        print(
            f"{name}: {1000 * breakdown.total_s:.4g} ms -> {1000 * frame.seconds:.4g} ms, "
            f"{frame.speedup:.3g}x, bound by {frame.bound_by}"
        )
    print(
        f"{arguments.calibration}, N={model.num_processors}: kernels shrink as the paper's do on "
        f"an RTX 3090; area +{model.area_percent:.2f} %, power +{model.power_percent:.2f} % of it"
    )
    return 0


def read_breakdowns(path: Path) -> dict[str, Breakdown]:
    """Measured frames by name, from JSON; refuses other keys and other types."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise MediaError(
            explain(str(path), expected="a JSON file", got=str(error), do="Mend the file.")
        ) from error
    if not isinstance(content, dict) or not content:
        content = {"(the file)": content}
    for name, parts in content.items():
        is_known = isinstance(parts, dict) and set(parts) == set(PARTS)
        if not is_known or any(
            isinstance(parts[part], bool) or not isinstance(parts[part], int | float)
            for part in PARTS
        ):
            raise ConfigError(
                explain(
                    f"{path}, {name}",
                    expected=f"numbers under {', '.join(PARTS)}",
                    got=json.dumps(parts)[:80],
                    do="Give the seconds of one frame, part by part.",
                )
            )
    return {
        name: Breakdown(**{part: float(parts[part]) for part in PARTS})
        for name, parts in content.items()
    }


def _print_report() -> None:
    header = f"{'figure':<47} {'paper':>7} {'model':>7} {'off':>7}  source; note"
    print(header)
    for line in report_lines():
        paper = "-" if line.paper is None else f"{line.paper:.2f}"
        if line.model is None:
            print(f"{line.name:<47} {paper:>7} {NOT_DERIVABLE:>15}  {line.note}")
            continue
        off = line.deviation_percent
        deviation = "-" if off is None else f"{off:+.1f}%"
        print(f"{line.name:<47} {paper:>7} {line.model:>7.2f} {deviation:>7}  {line.note}")
