"""What the page shows as HTML: pictures, the job list, a result. Every text is escaped."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from apps.studio.callbacks import Job
from cosmos_transfer.weights.maps import WeightMaps

TITLES = {"input": "Clip", "edge": "Edges", "depth": "Depth", "seg": "Classes", "vis": "Blur"}
COLORS = {
    "edge": (230, 159, 0),
    "depth": (86, 180, 233),
    "seg": (0, 158, 115),
    "vis": (204, 121, 167),
}
"""Of the controls, in the heat map: four of Okabe and Ito's colours, told apart by most eyes."""
METRICS = {
    "edge_f1": "Edge F1",
    "edge_f1_1px": "Edge F1, 1 px",
    "blur_ssim": "Blur SSIM",
    "depth_si_rmse": "Depth error, m",
    "mask_miou": "Mask IoU",
    "seam_ratio": "Seam",
    "seconds": "Seconds",
}
SHOWN_JOBS = 30


def heat_map(
    picture: UInt8[np.ndarray, "h w 3"], weights: WeightMaps
) -> UInt8[np.ndarray, "h w 3"]:
    """The weights of one frame over it: each control's colour as strong as it acts, stacked."""
    grey = picture.mean(axis=2, keepdims=True) * 0.45
    acting = weights.values[:, 0]
    rest = np.clip(1.0 - acting.sum(axis=0), 0.0, 1.0)[..., None]
    whole = grey * (0.4 + 0.6 * rest)
    for name, values in zip(weights.names, acting, strict=True):
        whole = whole + 0.75 * values[..., None] * np.array(COLORS[name], dtype=np.float32)
    return np.clip(whole, 0, 255).astype(np.uint8)


def figure(picture: UInt8[np.ndarray, "h w 3"], title: str, note: str = "") -> str:
    """A picture with its caption."""
    caption = escape(title) + (f" <small>{escape(note)}</small>" if note else "")
    return (
        f'<figure><img alt="{escape(title)}" src="{data_uri(picture)}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def stage(
    pictures: Mapping[str, UInt8[np.ndarray, "h w 3"]], weights: WeightMaps | None, title: str
) -> str:
    """The clip and its controls at one frame, and the weights that act there."""
    if not pictures:
        return (
            '<div class="empty"><p>Load a scene or a clip to see it here, with the controls that '
            "steer its new look.</p></div>"
        )
    figures = [figure(each, TITLES[name]) for name, each in pictures.items()]
    if weights is not None and weights.names:
        base = next(iter(pictures.values()))
        figures.append(figure(heat_map(base, weights), "Where they act", "cap applied"))
    legend = ""
    if weights is not None:
        means = [
            f'<li><i style="background:rgb{COLORS[name]}"></i>{TITLES[name]} '
            f"<b>{values.mean():.2f}</b></li>"
            for name, values in zip(weights.names, weights.values, strict=True)
        ]
        legend = f'<ul class="legend" aria-label="Mean weight">{"".join(means)}</ul>'
    return (
        f'<p class="facts">{escape(title)}</p><div class="stage">{"".join(figures)}</div>{legend}'
    )


def notice(text: str, kind: str = "info") -> str:
    """A sentence to the user; an ``error`` is read out at once."""
    if not text:
        return ""
    role = "alert" if kind == "error" else "status"
    return f'<div class="notice {kind}" role="{role}">{escape(text)}</div>'


def job_list(jobs: tuple[Job, ...], chosen: str | None) -> str:
    """The jobs with their states, the newest first."""
    if not jobs:
        return (
            '<p class="quiet">No jobs yet. What you run is listed here and survives a reload.</p>'
        )
    rows = []
    for job in jobs[:SHOWN_JOBS]:
        state = job.state
        detail = job.error or ""
        if state == "running":
            left = "" if job.left_s is None else f", {_time(job.left_s)} left"
            detail = f"{job.stage}, {job.share:.0%}{left}"
        elif state == "done" and "seconds" in job.metrics:
            detail = f"in {_time(job.metrics['seconds'])}"
        bar = ""
        if state == "running":
            bar = (
                f'<progress max="1" value="{job.share:.3f}" '
                f'aria-label="Progress of {escape(job.name)}"></progress>'
            )
        current = ' class="chosen" aria-current="true"' if job.name == chosen else ""
        rows.append(
            f"<li{current}><span class='pill {state}'>{state}</span><span class='what'>"
            f"<b>{escape(job.prompt)}</b><small>{escape(job.name)}</small></span>"
            f"<span class='how'>{escape(detail)}</span>{bar}</li>"
        )
    more = len(jobs) - SHOWN_JOBS
    rest = f'<p class="quiet">{more} older ones are not shown.</p>' if more > 0 else ""
    return f'<ul class="jobs">{"".join(rows)}</ul>{rest}'


def result(job: Job | None, files: Mapping[str, Path], preview: Path | None) -> str:
    """A job as far as it is: its estimate while it runs; before and after when it is done."""
    if job is None:
        return '<p class="quiet">The result appears here.</p>'
    if job.state == "running" and preview is not None:
        return (
            '<figure class="estimate"><img alt="Estimate of the first frame" '
            f'src="{data_uri(preview.read_bytes())}"><figcaption>First frame, as far as it is'
            "</figcaption></figure>"
        )
    if job.state != "done":
        return f'<p class="quiet">{escape(_about(job))}</p>'
    chips = "".join(
        f"<li>{METRICS[name]} <b>{value:.3g}</b></li>"
        for name, value in job.metrics.items()
        if name in METRICS
    )
    return f'{_compare(files)}<ul class="metrics" aria-label="Metrics">{chips}</ul>'


def data_uri(picture: UInt8[np.ndarray, "h w 3"] | bytes) -> str:
    """A PNG as an address that asks nobody."""
    content = picture
    if isinstance(content, np.ndarray):
        stream = io.BytesIO()
        Image.fromarray(content).save(stream, format="PNG", compress_level=1)
        content = stream.getvalue()
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _compare(files: Mapping[str, Path]) -> str:
    """Both clips one over the other, with a line to draw; one of them where there is one."""
    made = files.get("clip")
    if made is None:
        return '<p class="quiet">Its files are gone.</p>'
    if made.suffix != ".mp4":
        return f'<img class="still" alt="Result" src="{_served(made)}">'
    clip = (
        f'<video src="{_served(made)}" aria-label="Result" autoplay loop muted playsinline></video>'
    )
    if (before := files.get("input")) is None:
        return f'<div class="wipe">{clip}</div>'
    return (
        f'<div class="wipe" style="--cut:50%">{clip}'
        f'<video class="before" src="{_served(before)}" aria-label="Clip before" autoplay loop '
        'muted playsinline></video><span class="tag left">before</span>'
        '<span class="tag right">after</span>'
        '<input type="range" min="0" max="100" value="50" aria-label="Before and after" '
        "oninput=\"this.parentElement.style.setProperty('--cut', this.value + '%')\"></div>"
    )


def _served(path: Path) -> str:
    return f"/gradio_api/file={quote(str(path))}"


def _about(job: Job) -> str:
    return {
        "waiting": "Waits for its turn.",
        "running": "Starting.",
        "cancelled": "Cancelled.",
    }.get(job.state, job.error or job.state)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
