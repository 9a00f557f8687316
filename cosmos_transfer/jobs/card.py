"""The card of an augmented dataset: where it comes from, what was accepted, how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

import cosmos_transfer
from cosmos_transfer.datasets.base import Card, EpisodeSource, new_clip_path
from cosmos_transfer.inputs.video import read_clip
from cosmos_transfer.jobs.accept import Threshold
from cosmos_transfer.jobs.manifest import Row
from cosmos_transfer.metrics.evaluate import MEASURES
from cosmos_transfer.outputs.sheet import PAPER, SheetRow, contact_sheet, evenly_spaced

SHOWN_EPISODES = 3
SHOWN_LOOKS = 5
MOMENTS = 5


def dataset_card(
    dataset: EpisodeSource,
    folder: Path,
    done: Sequence[Row],
    refused: Sequence[Row],
    *,
    thresholds: Sequence[Threshold],
    checkpoint: str,
) -> Card:
    """The text with the table of outcomes, and a sheet of some episodes and their looks.

    Args:
        dataset: Where the episodes come from.
        folder: The job's, with the new clips.
        done: Rows that were accepted.
        refused: Rows that were not.
        thresholds: What was asked of them.
        checkpoint: What made them.
    """
    rules = ", ".join(map(str, thresholds)) or "none"
    name = dataset.repo_id
    lines = [
        "---",
        f"tags: [{dataset.kind}, synthetic]",
        "---",
        f"# {name}, augmented",
        "",
        f"{len(done)} episodes of {name} in other looks, by cosmos-transfer "
        f"{cosmos_transfer.__version__} (checkpoint `{checkpoint}`). Everything but the pictures "
        "is the source's own; the provenance says which episode is which.",
        "",
        f"Thresholds: {rules}. Accepted {len(done)}, refused {len(refused)}.",
        "",
        "| source episode | look | attempt | metrics | outcome |",
        "|---|---|---|---|---|",
    ]
    for row in sorted([*done, *refused], key=lambda row: row.id):
        values = [
            f"{each.name} {row.metrics[each.name]:.3f}"
            for each in MEASURES
            if each.name in row.metrics
        ]
        lines.append(
            f"| {dataset.episodes[row.payload['episode']].index} | {_cell(row.payload['prompt'])} "
            f"| {row.metrics['attempt']} | {', '.join(values) or 'not asked for'} | {row.state} |"
        )
    return Card(text="\n".join(lines) + "\n", sheet=_sheet(dataset, folder, done))


def _sheet(dataset: EpisodeSource, folder: Path, done: Sequence[Row]) -> UInt8[np.ndarray, "h w 3"]:
    """A few episodes: each one's source, then its looks, at the same moments."""
    places = list(dict.fromkeys(row.payload["episode"] for row in done))
    sheets = []
    for place in (places[index] for index in evenly_spaced(len(places), SHOWN_EPISODES)):
        episode = dataset.episodes[place]
        rows = [row for row in done if row.payload["episode"] == place][:SHOWN_LOOKS]
        camera = rows[0].payload["cameras"][0]
        shown = [SheetRow(title="source", note=camera, frames=dataset.frames(episode, camera))]
        for row in rows:
            frames = read_clip(new_clip_path(folder, row.name, camera)).frames
            note = row.payload["prompt"]
            shown.append(
                SheetRow(title=f"variant {row.payload['variant']}", note=note, frames=frames)
            )
        times = [float(each) for each in dataset.clock(episode, camera)]
        title = f"episode {episode.index}"
        sheets.append(contact_sheet(shown, times_s=times, columns=MOMENTS, title=title))
    return _stacked(sheets)


def _stacked(sheets: Sequence[UInt8[np.ndarray, "_ _ 3"]]) -> UInt8[np.ndarray, "h w 3"]:
    width = max(sheet.shape[1] for sheet in sheets)
    page = np.empty((sum(map(len, sheets)), width, 3), dtype=np.uint8)
    page[:] = PAPER
    top = 0
    for sheet in sheets:
        page[top : top + len(sheet), : sheet.shape[1]] = sheet
        top += len(sheet)
    return page


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
