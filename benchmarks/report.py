"""Tables from results files. ``benchmarks/README.md`` is written from here, never by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results_file import FOLDER, read_results
from cosmos_transfer.metrics.predictors import Floor

TITLES = {
    "edge_f1": "edge F1, strict ↑",
    "edge_f1_1px": "edge F1, 1 px ↑",
    "mask_miou": "mask mIoU ↑",
    "depth_si_rmse": "depth si-RMSE, m ↓",
    "blur_ssim": "blur SSIM, input ↑",
    "blur_ssim_render": "blur SSIM, true render ↑",
}
PARTS = ("table", "sharpness", "prompts", "mask", "timing")
LEAST_SHARPNESS, LARGEST_FLICKER = 0.70, 1.5
README = Path(__file__).parent / "README.md"
HEAD = """# Benchmarks

Written by `benchmarks/report.py` from the newest files in [results/](results). Do not edit.

`make bench-embedded` measures the embedded model on 48 held-out clips and writes this page again;
`python -m benchmarks.embedded --help` lists its options. [embedded/](embedded/__init__.py) says at
its top what each number means.
"""


def report(results: Mapping[str, Any]) -> str:
    """A run's results as text that reads well in a terminal and in Markdown."""
    sections = {
        "table": _table,
        "sharpness": _sharpness,
        "prompts": _prompts,
        "mask": _mask,
        "timing": _timing,
    }
    return "\n\n".join(sections[part](results) for part in PARTS if part in results)


def readme(runs: Sequence[Mapping[str, Any]]) -> str:
    """The page: every part from the newest run, on the most clips, that has it."""
    pieces = [HEAD.rstrip()]
    for part in PARTS:
        having = [run for run in runs if part in run]
        if not having:
            continue
        most = max(run["settings"]["num_clips"] for run in having)
        run = next(run for run in having if run["settings"]["num_clips"] == most)
        pieces += [report({part: run[part], "settings": run["settings"]}), _source(run)]
    return "\n\n".join(pieces) + "\n"


def write_readme(path: Path = README, folder: Path = FOLDER) -> None:
    """Write the page from the results in a folder."""
    path.write_text(readme(read_results("embedded", folder)), encoding="utf-8")


def _source(run: Mapping[str, Any]) -> str:
    machine, settings = run["hardware"], run["settings"]
    name = machine["gpu"] or f"{machine['cores']} x {machine['processor']}"
    return (
        f"*{run['date']}, commit {run['commit']}, checkpoint {run['checkpoint']['id']}, "
        f"{run['device']}: {name}, {machine['threads']} threads, load {machine['load_average']}; "
        f"{settings['num_clips']} clips, {settings['steps']} steps of {settings['sampler']}, "
        f"guidance {settings['guidance_scale']:g}; [results/{run['file']}](results/{run['file']})*"
    )


def _table(results: Mapping[str, Any]) -> str:
    table, num_clips = results["table"], results["settings"]["num_clips"]
    header = ["", *TITLES.values()]
    rows = [
        [name, *(_number(each[metric]) for metric in TITLES)]
        for name, each in table["rows"].items()
    ]
    shares = [
        [name, *(_share(each[metric]) for metric in TITLES)]
        for name, each in table["shares"].items()
    ]
    text = [
        f"## Fidelity to the controls, {num_clips} held-out clips",
        _grid([header, *rows]),
        "Share of the gap closed, (with - without) / (true - without):",
        _grid([header, *shares]),
    ]
    floors = [
        f"{TITLES[name]}: {Floor(**floor)}"
        for name, floor in table["floors"].items()
        if floor is not None
    ]
    if floors:
        text.append("The predictors' own error, their floor: " + "; ".join(floors) + ".")
    return "\n\n".join(text)


def _sharpness(results: Mapping[str, Any]) -> str:
    part = results["sharpness"]
    rows = [["", "outputs", "true renders", "ratio", "per clip, median", "bar"]]
    for name, title, unit, bar in (
        ("gradient_energy", "gradient energy, 1e-3", 1e3, f"at least {LEAST_SHARPNESS:.2f}"),
        ("flicker", "flicker, grey levels", 1.0, f"at most {LARGEST_FLICKER:.2f}"),
    ):
        each = part[name]
        rows.append(
            [
                title,
                *(
                    _number({key: unit * value for key, value in each[side].items()})
                    for side in ("output", "true_render")
                ),
                _number(each["ratio"]),
                f"{each['per_clip_median']:.3f}",
                bar,
            ]
        )
    return "## Sharpness and steadiness, all four controls at 0.25\n\n" + _grid(rows)


def _prompts(results: Mapping[str, Any]) -> str:
    header = [
        "",
        "night darker than day",
        "snow whiter than day",
        *("mean luminance " + n for n in ("night", "day")),
        *("white on the ground, " + n for n in ("day", "snow")),
    ]
    rows = [header]
    for name, each in results["prompts"].items():
        means = each["means"]
        numbers = [
            _number(means[key]) if key in means else "-"
            for key in ("luminance_night", "luminance_day", "white_day", "white_snow")
        ]
        rows.append(
            [
                name,
                f"{each['night_darker']} of {each['num_clips']}",
                f"{each['snow_whiter']} of {each['num_driving']}",
                *numbers,
            ]
        )
    return "## Prompts: same clip, same noise\n\n" + _grid(rows)


def _mask(results: Mapping[str, Any]) -> str:
    rows = [
        ["edge on the left half", "change on the left", "change on the right", "ratio", "clips"]
    ]
    rows += [
        [
            TITLES[metric].removesuffix(" ↑"),
            *(_number(each[key]) for key in ("change_left", "change_right")),
            f"{each['ratio']['value']:.1f} ± {each['ratio']['standard_error']:.1f}",
            str(each["num_clips"]),
        ]
        for metric, each in results["mask"].items()
    ]
    return "## Weight maps: edge F1 against no control\n\n" + _grid(rows)


def _timing(results: Mapping[str, Any]) -> str:
    timing = results["timing"]
    stages = ", ".join(f"{name} {value:.2f} s" for name, value in timing["stages"].items())
    return (
        f"## Time\n\n{timing['seconds']:.1f} s (median of {timing['runs']}; "
        f"{timing['fastest']:.1f} to {timing['slowest']:.1f}) for {timing['num_frames']} frames, "
        f"{timing['steps']} steps with guidance and all four controls: {stages}."
    )


def _number(estimate: Mapping[str, float]) -> str:
    digits = 1 if abs(estimate["value"]) >= 20 else 3
    return f"{estimate['value']:.{digits}f} ± {estimate['standard_error']:.{digits}f}"


def _share(estimate: Mapping[str, float]) -> str:
    return f"{estimate['value']:.0%} ± {estimate['standard_error']:.0%}"


def _grid(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are padded to one width."""
    widths = [max(3, *(len(row[i]) for row in rows)) for i in range(len(rows[0]))]
    lines = [
        _line(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]
    return "\n".join([lines[0], _line("-" * width for width in widths), *lines[1:]])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
