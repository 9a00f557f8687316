"""The studio's page: layout and wiring. What happens is in ``callbacks``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from apps.studio import callbacks, pages
from apps.studio.callbacks import WHERE, Choice, Look, Studio, Workers
from cosmos_transfer.errors import TransferError
from cosmos_transfer.inputs.request import CONTROL_NAMES
from cosmos_transfer.jobs.looks import look_names

POLL_S = 1.5
FIELDS_OF_A_CHOICE = 6
CSS_PATH = Path(__file__).with_name("studio.css")
WEIGHTS = {"edge": 0.25, "depth": 0.25, "seg": 0.25, "vis": 0.25}


def build(studio: Studio, workers: Workers) -> Any:
    """The page, as Gradio's Blocks."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    import gradio as gr

    def noticed(function: Callable[..., Any], num_outputs: int) -> Callable[..., Any]:
        """The function with a notice in front of its outputs; a mistake leaves the rest alone."""

        def call(*values: Any) -> list[Any]:
            try:
                found = function(*values)
            except TransferError as error:
                return [pages.notice(str(error), "error"), *[gr.skip()] * num_outputs]
            return list(found)

        return call

    with gr.Blocks(title="Cosmos Transfer Studio", analytics_enabled=False) as page:
        source_id = gr.State("")
        seen = gr.State("")
        mask_ids = [gr.State(None) for _ in CONTROL_NAMES]
        gr.HTML(
            "<header><h1>Cosmos Transfer Studio</h1><p>The same world with another look: choose a "
            "clip, say where each control holds, describe the look.</p></header>"
        )
        note = gr.HTML(elem_id="notice")
        with gr.Row(elem_id="columns"):
            with gr.Column(scale=5, min_width=320, elem_id="left"):
                with gr.Group(elem_classes="card"):
                    gr.HTML("<h2>1 Clip</h2>")
                    scene = gr.Dropdown(
                        list(callbacks.scene_names(studio)),
                        value="tabletop",
                        label="Built-in scene or recording",
                    )
                    open_scene = gr.Button("Open scene", elem_id="open-scene")
                    upload = gr.File(
                        label="Or upload a clip", type="filepath", height=110, elem_id="upload"
                    )
                with gr.Group(elem_classes="card"):
                    gr.HTML("<h2>2 Controls</h2>")
                    with gr.Row():
                        sliders = [
                            gr.Slider(
                                0,
                                1,
                                value=WEIGHTS[name],
                                step=0.05,
                                label=pages.TITLES[name],
                                min_width=140,
                                buttons=[],
                                elem_id=f"weight-{name}",
                            )
                            for name in CONTROL_NAMES
                        ]
                    with gr.Accordion("Where and when they act", open=False), gr.Tabs():
                        details = [_control_details(gr, name) for name in CONTROL_NAMES]
                    with gr.Accordion("Paint a mask", open=False, elem_id="paint"):
                        editor = gr.ImageEditor(
                            label="Paint where the control acts",
                            type="numpy",
                            sources=(),
                            transforms=(),
                            layers=False,
                            brush=gr.Brush(default_size=24, colors=["#e69f00"], color_mode="fixed"),
                            height=360,
                            elem_id="editor",
                        )
                        with gr.Row():
                            mask_for = gr.Dropdown(
                                [(pages.TITLES[name], name) for name in CONTROL_NAMES],
                                value="edge",
                                label="Mask for",
                                min_width=120,
                            )
                            keep = gr.Button("Keep the mask", elem_id="keep-mask", min_width=120)
                with gr.Group(elem_classes="card"):
                    gr.HTML("<h2>3 Look</h2>")
                    prompt = gr.Textbox(
                        label="Prompt",
                        value="a robot arm on a wooden table, brick wall, daylight",
                        lines=2,
                        elem_id="prompt",
                    )
                    looks = gr.Dropdown(
                        list(look_names()), multiselect=True, label="Looks to add", value=[]
                    )
                    with gr.Row():
                        seed = gr.Number(value=7, label="Seed", precision=0, min_width=90)
                        variants = gr.Number(
                            value=1, label="Variants", precision=0, minimum=1, min_width=90
                        )
                        steps = gr.Number(
                            value=None, label="Steps", precision=0, min_width=90, placeholder="auto"
                        )
                        guidance = gr.Number(
                            value=None, label="Guidance", min_width=90, placeholder="auto"
                        )
                        frames = gr.Number(
                            value=None, label="Frames", precision=0, min_width=90, placeholder="all"
                        )
                    run = gr.Button("Run", variant="primary", elem_id="run")
            with gr.Column(scale=7, min_width=320, elem_id="right"):
                with gr.Group(elem_classes="card"):
                    gr.HTML("<h2>View</h2>")
                    view = gr.HTML(pages.stage({}, None, ""), elem_id="view")
                    frame = gr.Slider(
                        0, 1, value=0, step=1, label="Frame", buttons=[], elem_id="frame"
                    )
                with gr.Group(elem_classes="card"):
                    gr.HTML("<h2>Result</h2>")
                    chosen = gr.Dropdown([], label="Job", elem_id="job", interactive=True)
                    shown = gr.HTML(pages.result(None, {}, None), elem_id="result")
                    with gr.Row():
                        downloads = [
                            gr.DownloadButton(
                                title, visible=False, size="sm", elem_id=f"download-{kind}"
                            )
                            for kind, title in DOWNLOADS
                        ]
                        stop = gr.Button("Cancel", size="sm", visible=False, elem_id="cancel")
                with gr.Group(elem_classes="card"):
                    gr.HTML("<h2>Jobs</h2>")
                    listed = gr.HTML(pages.job_list((), None), elem_id="jobs")

        flat = [part for parts in details for part in parts]
        steering = [source_id, frame, *sliders, *flat, *mask_ids]

        def opened(source: Any) -> list[Any]:
            last = min(source.num_frames, callbacks.MAX_FRAMES) - 1
            pictures = callbacks.frame_pictures(studio, source.id, 0)
            choices = [
                chip
                for name in source.classes
                for chip in (f"{name} 1.0", f"{name} 0.5", f"{name} 0.3")
            ]
            offered = [gr.update(choices=choices, value=[]) for _ in CONTROL_NAMES]
            return [
                "",
                source.id,
                gr.update(maximum=max(last, 1), value=0),
                {"background": pictures.get("input"), "layers": [], "composite": None},
                *offered,
                *[None for _ in CONTROL_NAMES],
            ]

        def draw(*values: Any) -> list[str]:
            if not values[0]:
                return ["", pages.stage({}, None, "")]
            source = callbacks.find_source(studio, values[0])
            choices = _choices(values[2:])
            presets = {name: choice.preset for name, choice in choices.items()}
            pictures = callbacks.frame_pictures(studio, source.id, values[1], presets)
            try:
                weights, text = (
                    callbacks.effective_weights(studio, source.id, choices, values[1]),
                    "",
                )
            except TransferError as error:
                weights, text = None, pages.notice(str(error), "error")
            title = (
                f"{source.title}: {source.num_frames} frames, {source.width}x{source.height}, "
                f"{source.rate:g} fps"
            )
            return [text, pages.stage(pictures, weights, title)]

        def editor_at(source: str, index: float) -> Any:
            if not source:
                return gr.skip()
            picture = callbacks.frame_pictures(studio, source, int(index)).get("input")
            return {"background": picture, "layers": [], "composite": None}

        def kept(source: str, index: float, painted: Any, control: str) -> list[Any]:
            mask_id, share = callbacks.keep_mask(studio, source, painted, int(index))
            text = (
                f"The mask of {pages.TITLES[control].lower()} covers {share:.1%} of the clip; "
                "it was followed through all frames."
            )
            ids = [mask_id if name == control else gr.skip() for name in CONTROL_NAMES]
            where = ["painted" if name == control else gr.skip() for name in CONTROL_NAMES]
            return [pages.notice(text), *ids, *where]

        def submitted(*values: Any) -> list[Any]:
            text, extra, num_seed, num, num_steps, scale, length = values[2 + _NUM_STEERING :]
            look = Look(
                prompt=text or "",
                looks=tuple(extra or ()),
                seed=int(num_seed or 0),
                variants=int(num or 1),
                steps=int(num_steps) if num_steps else None,
                guidance=float(scale) if scale else None,
                frames=int(length) if length else None,
            )
            names = callbacks.submit(studio, values[0], _choices(values[2:]), look)
            workers.ensure()
            said = "Queued." if len(names) == 1 else f"{len(names)} jobs queued."
            return [pages.notice(said), gr.update(choices=_job_names(studio), value=names[0])]

        def tick(name: str | None, before: str) -> list[Any]:
            workers.ensure()
            found = callbacks.jobs(studio)
            names = [job.name for job in found]
            if name not in names:
                name = names[0] if names else None
            job = next((each for each in found if each.name == name), None)
            preview = None if job is None else callbacks.preview_path(studio, job)
            stamp = 0 if preview is None else preview.stat().st_mtime_ns
            listing = pages.job_list(found, name)
            state = "" if job is None else job.state
            now = repr((name, state, stamp, len(found)))
            if now == before:  # a clip that plays is not started again
                skipped = [gr.skip()] * (3 + len(DOWNLOADS))
                return [gr.skip(), listing, *skipped]
            files = callbacks.result_files(studio, name)
            buttons = [
                gr.update(visible=kind in files, value=str(files[kind]) if kind in files else None)
                for kind, _ in DOWNLOADS
            ]
            return [
                now,
                listing,
                gr.update(choices=names, value=name),
                pages.result(job, files, preview),
                *buttons,
                gr.update(visible=state in ("waiting", "running")),
            ]

        def cancelled(name: str | None) -> list[Any]:
            return [pages.notice(f"{callbacks.cancel(studio, name)} is cancelled.")]

        opened_outputs = [
            note,
            source_id,
            frame,
            editor,
            *[parts[1] for parts in details],
            *mask_ids,
        ]
        plain = {"show_progress": "hidden", "concurrency_limit": 4}
        for trigger, call, name in (
            (
                open_scene.click,
                lambda each: opened(callbacks.load_scene(studio, each)),
                "open_scene",
            ),
            (upload.upload, lambda each: opened(callbacks.load_upload(studio, each)), "load_clip"),
        ):
            trigger(
                noticed(call, len(opened_outputs) - 1),
                [scene if name == "open_scene" else upload],
                opened_outputs,
                api_name=name,
                api_description="Load a clip; returns a notice and its id.",
            ).then(noticed(draw, 1), steering, [note, view], api_visibility="private", **plain)
        gr.on(
            [part.change for part in (*sliders, *flat, *mask_ids)] + [frame.change],
            noticed(draw, 1),
            steering,
            [note, view],
            trigger_mode="always_last",
            api_name="draw",
            api_description="The clip, its controls and the effective weights at a frame, as HTML.",
            **plain,
        )
        frame.release(editor_at, [source_id, frame], [editor], api_visibility="private", **plain)
        keep.click(
            noticed(kept, 2 * len(CONTROL_NAMES)),
            [source_id, frame, editor, mask_for],
            [note, *mask_ids, *[parts[0] for parts in details]],
            api_name="keep_mask",
            api_description="Follow what was painted through the clip, for one control.",
        )
        run.click(
            noticed(submitted, 1),
            [*steering, prompt, looks, seed, variants, steps, guidance, frames],
            [note, chosen],
            api_name="run",
            api_description="Queue jobs; returns a notice and the first one's name.",
            concurrency_limit=4,
        )
        watched = [seen, listed, chosen, shown, *downloads, stop]
        gr.on(
            [page.load, gr.Timer(POLL_S).tick, chosen.input],
            tick,
            [chosen, seen],
            watched,
            api_visibility="private",
            show_progress="hidden",
            concurrency_limit=8,
        )
        stop.click(
            noticed(cancelled, 0),
            [chosen],
            [note],
            api_name="cancel",
            api_description="Stop a job that waits or runs.",
        )
    return page


DOWNLOADS = (("clip", "Clip"), ("record", "Record"), ("spec", "Spec"))
_NUM_STEERING = len(CONTROL_NAMES) * (FIELDS_OF_A_CHOICE + 1)


def launch(
    studio: Studio,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    auth: Sequence[tuple[str, str]] = (),
    block: bool = True,
) -> tuple[Any, Workers]:
    """Serve the page; returns it with its workers where it does not block."""
    import gradio as gr

    for folder in (studio.inputs, studio.results):
        folder.mkdir(parents=True, exist_ok=True)
    workers = Workers(studio)
    workers.ensure()
    page = build(studio, workers)
    theme = gr.themes.Base(
        primary_hue=gr.themes.colors.teal,
        neutral_hue=gr.themes.colors.slate,
        font=("system-ui", "DejaVu Sans", "sans-serif"),
        font_mono=("ui-monospace", "DejaVu Sans Mono", "monospace"),
    )
    page.queue(max_size=200).launch(
        server_name=host,
        server_port=port,
        auth=list(auth) or None,
        share=False,
        inbrowser=False,
        quiet=True,
        show_error=False,
        allowed_paths=[str(studio.results)],
        max_file_size=studio.limits.size_bytes,
        ssr_mode=False,
        enable_monitoring=False,
        footer_links=[],
        prevent_thread_lock=not block,
        theme=theme,
        css_paths=[str(CSS_PATH)],
    )
    return page, workers


def _control_details(gr: Any, name: str) -> list[Any]:
    """Where and when one control acts: the parts of its tab, in the order of ``_choices``."""
    title = pages.TITLES[name]
    with gr.Tab(title):
        where = gr.Radio(list(WHERE), value=WHERE[0], label=f"{title}: where")
        classes = gr.Dropdown(
            [],
            value=[],
            multiselect=True,
            allow_custom_value=True,
            label=f"{title}: classes and their weights",
            info="Such as robot 1.0; what is not named does not count.",
        )
        with gr.Row():
            start = gr.Slider(
                0, 1, value=1, step=0.05, label=f"{title}: first frame", min_width=120, buttons=[]
            )
            end = gr.Slider(
                0, 1, value=1, step=0.05, label=f"{title}: last frame", min_width=120, buttons=[]
            )
        preset = gr.Dropdown(
            list(callbacks.PRESETS),
            value="medium",
            label=f"{title}: strength of the filter",
            visible=name in ("edge", "vis"),
        )
    return [where, classes, start, end, preset]


def _choices(values: Sequence[Any]) -> dict[str, Choice]:
    """The choices of all controls: the sliders, the tabs' parts, the masks."""
    count = len(CONTROL_NAMES)
    parts = FIELDS_OF_A_CHOICE - 1
    weights, rest = values[:count], values[count : count + parts * count]
    mask_ids = values[count + parts * count : count + parts * count + count]
    found = {}
    for index, name in enumerate(CONTROL_NAMES):
        where, classes, start, end, preset = rest[index * parts : (index + 1) * parts]
        found[name] = Choice(
            weight=float(weights[index] or 0.0),
            where=where,
            classes=tuple(classes or ()),
            start=float(start),
            end=float(end),
            preset=preset or "medium",
            mask=mask_ids[index],
        )
    return found


def _job_names(studio: Studio) -> list[str]:
    return [job.name for job in callbacks.jobs(studio)]
