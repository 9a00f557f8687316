"""Tables from results files. ``benchmarks/README.md`` is written from here, never by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.embedded.bars import HEADER, LARGEST_FLICKER, LEAST_SHARPNESS, bars
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
REGION_TITLES = {
    "blur_ssim": "blur SSIM, input ↑",
    "edge_f1": "edge F1, strict ↑",
    "depth_si_rmse": "depth si-RMSE, m ↓",
    "mask_miou": "mask mIoU ↑",
    "diversity": "diversity",
}
README = Path(__file__).parent / "README.md"
MAIN = "embedded"
HEAD = """# Benchmarks

Written by `benchmarks/report.py` from the newest files in [results/](results). Do not edit.

`make bench-embedded` measures the embedded model on 48 held-out clips and writes this page again,
`make bench-embedded-fast` what its distilled variant keeps of it;
`python -m benchmarks.embedded --help` lists the options. [embedded/](embedded/__init__.py) says at
its top what each number means.
"""


def report(results: Mapping[str, Any], against: Mapping[str, Any] | None = None) -> str:
    """A run's results as text that reads well in a terminal and in Markdown.

    Args:
        results: Of one run.
        against: The run that it is held against, where it is of a variant.
    """
    pieces = [section(results) for part, section in SECTIONS.items() if part in results]
    if found := bars(results, against):
        rows = [HEADER, *(bar.cells() for bar in found)]
        pieces.append("## Against the bars\n\n" + _grid(rows))
    return "\n\n".join(pieces)


def against(results: Mapping[str, Any], folder: Path = FOLDER) -> dict[str, Any] | None:
    """What a variant is held against: every part of ``embedded``, with its newest weights, on the
    most clips; None for ``embedded`` itself."""
    if results["checkpoint"]["id"] == MAIN:
        return None
    runs = _merged(_newest_weights(read_results("embedded", folder), MAIN))
    return {part: run[part] for part, run in runs.items()} or None


def readme(runs: Sequence[Mapping[str, Any]]) -> str:
    """The page: of every checkpoint's newest weights, every part from the newest run, on the most
    clips, that has it; ``embedded`` first."""
    pieces = [HEAD.rstrip()]
    ids = sorted({run["checkpoint"]["id"] for run in runs}, key=lambda name: (name != MAIN, name))
    main: dict[str, Any] = {}
    for checkpoint in ids:
        if checkpoint != MAIN:
            pieces.append(f"# {checkpoint}")
        merged = _merged(_newest_weights(runs, checkpoint))
        for part, run in merged.items():
            pieces += [SECTIONS[part](run), _source(run)]
        parts = {part: run[part] for part, run in merged.items()}
        if found := bars(parts, None if checkpoint == MAIN else main):
            pieces.append("## Against the bars")
            pieces.append(_grid([HEADER, *(bar.cells() for bar in found)]))
        if checkpoint == MAIN:
            main = parts
    return "\n\n".join(pieces) + "\n"


def _merged(runs: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """By part the newest run on the most clips that has it, of runs that begin with the newest."""
    found = {}
    for part in SECTIONS:
        if having := [run for run in runs if part in run]:
            most = max(_clips(run, part) for run in having)
            found[part] = next(run for run in having if _clips(run, part) == most)
    return found


def _newest_weights(runs: Sequence[Mapping[str, Any]], checkpoint: str) -> list[Mapping[str, Any]]:
    """The runs of a checkpoint that had the weights of its newest run, the newest first."""
    of_it = [run for run in runs if run["checkpoint"]["id"] == checkpoint]
    return [run for run in of_it if run["checkpoint"] == of_it[0]["checkpoint"]]


def write_readme(path: Path = README, folder: Path = FOLDER) -> None:
    """Write the page from the results in a folder."""
    pieces = [readme(read_results("embedded", folder)).rstrip()]
    if of_reading := read_results("reading", folder):
        pieces.append(reading(of_reading))
    path.write_text("\n\n".join(pieces) + "\n", encoding="utf-8")


def reading(runs: Sequence[Mapping[str, Any]]) -> str:
    """Reading and extracting against a plain OpenCV loop, and memory over length: every run, the
    newest first, because how busy the machine was decides what two threads are worth."""
    rows = [["", "times faster", "times less processor time", "load", "run"]]
    notes = []
    for run in runs:
        link = f"[{run['date']}](results/{run['file']})"
        load = str(run["hardware"]["load_average"])
        for name, found in run.get("speed", {}).items():
            rows.append(
                [name, f"{found['times_faster']:.2f}", f"{found['times_less_cpu']:.2f}", load, link]
            )
        if memory := run.get("memory"):
            peaks = ", ".join(
                f"{peak:.0f} MB for {length} frames" for length, peak in memory["peak_mb"].items()
            )
            notes.append(f"Peak memory at 640x480: {peaks}; ratio {memory['ratio']:.2f} ({link}).")
    return "\n\n".join(
        [
            "# Reading clips",
            "A 121-frame 1280x704 clip is read, scaled and its edges and blur extracted, by this "
            "package and by a plain OpenCV loop ([reading.py](reading.py)).",
            _grid(rows),
            *notes,
        ]
    )


def _clips(run: Mapping[str, Any], part: str) -> int:
    measured: Mapping[str, int] = run.get("clips_measured", {})
    return measured.get(part, run["settings"]["num_clips"])


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


def _classifier(results: Mapping[str, Any]) -> str:
    part = results["classifier"]
    rows = [["read right", "outputs", "true renders", "clips"]]
    for name, each in part["attributes"].items():
        rows.append(
            [
                name.replace("_", " "),
                str(each["outputs"]),
                str(each["true_renders"]),
                str(each["num_clips"]),
            ]
        )
    accuracy = part["accuracy"]
    share = " and ".join(
        f"{_share(accuracy[side])} off {title}"
        for side, title in (("outputs", "outputs"), ("true_renders", "true renders"))
    )
    return (
        "## Attributes of the prompt, read by a classifier of true renders\n\n"
        + _grid(rows)
        + f"\n\nMean over clips of the attributes read right: {share}; ratio "
        + f"{_number(part['ratio'])}."
    )


def _diversity(results: Mapping[str, Any]) -> str:
    part = results["diversity"]
    read = part["attributes_read"]
    return (
        f"## Diversity over six prompts, {part['num_clips']} clips\n\n"
        f"Mean distance of a pair: outputs {_number(part['distance']['outputs'])}, true renders "
        f"{_number(part['distance']['true_renders'])}, ratio {_number(part['ratio'])}. Attributes "
        f"read right: {read['outputs'][0]} of {read['outputs'][1]} off outputs, "
        f"{read['true_renders'][0]} of {read['true_renders'][1]} off true renders."
    )


def _seeds(results: Mapping[str, Any]) -> str:
    part = results["seeds"]
    return (
        f"## Diversity over six seeds of one prompt, {part['num_clips']} clips\n\n"
        f"Mean distance of a pair: {_number(part['distance'])}; least {part['least']:.4f}."
    )


def _regions(results: Mapping[str, Any]) -> str:
    part = results["regions"]
    rows = [["setting", "region", *REGION_TITLES.values()]]
    for setting, regions in part["rows"].items():
        for region, each in regions.items():
            rows.append([setting, region, *(_number(each[metric]) for metric in REGION_TITLES)])
    changes = [["first setting minus second", "region", "published", "here", "agrees"]]
    for each in part["directions"]:
        says = {True: "yes", False: "no", None: "names none"}[each["agrees"]]
        title = REGION_TITLES[each["metric"]]
        change = each["change"]
        here = f"{change['value']:+.3f} ± {change['standard_error']:.3f}"
        changes.append([title, each["region"], f"{each['published']:+.2f}", here, says])
    return (
        f"## Foreground and background, {part['num_clips']} clips\n\n"
        + _grid(rows)
        + "\n\n"
        + _grid(changes)
    )


def _mujoco(results: Mapping[str, Any]) -> str:
    part = results["mujoco"]
    metrics = list(part["ratios"])
    rows = [["", *(TITLES[metric] for metric in metrics)]]
    rows += [
        [name, *(_number(each[metric]) for metric in metrics)]
        for name, each in part["rows"].items()
    ]
    rows.append(
        ["outputs over own frames", *(_number(part["ratios"][metric]) for metric in metrics)]
    )
    return f"## Arm scenes of MuJoCo, {part['num_clips']} scenes\n\n" + _grid(rows)


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


SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "table": _table,
    "sharpness": _sharpness,
    "classifier": _classifier,
    "prompts": _prompts,
    "diversity": _diversity,
    "seeds": _seeds,
    "regions": _regions,
    "mask": _mask,
    "mujoco": _mujoco,
    "timing": _timing,
}
