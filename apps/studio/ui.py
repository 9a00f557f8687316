"""The studio's page: layout and wiring. What happens is in ``callbacks``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from apps.primitives import ui as primitives
from apps.studio import callbacks, pages
from apps.studio.callbacks import WHERE, Choice, Look, Studio, Workers
from cosmos_transfer.errors import TransferError
from cosmos_transfer.inputs.request import CONTROL_NAMES
from cosmos_transfer.jobs.looks import look_names

POLL_S = 1.5
KEPT_S = (3600, 86400)
"""How often Gradio looks for copies of its own to delete, and how old they are then."""
FIELDS_OF_A_CHOICE = 6
CSS_PATH = Path(__file__).with_name("studio.css")
WEIGHTS = {"edge": 0.25, "depth": 0.25, "seg": 0.25, "vis": 0.25}


def build(studio: Studio, workers: Workers) -> Any:
    """The page, as Gradio's Blocks."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    import gradio as gr

    with gr.Blocks(
        title="Cosmos Transfer Studio", analytics_enabled=False, delete_cache=KEPT_S
    ) as page:
        parts = _layout(gr, studio)
        _wire(gr, page, parts, Actions(gr, studio, workers))
    return page


class Actions:
    """What the parts of the page do: their values in, theirs out."""

    def __init__(self, gr: Any, studio: Studio, workers: Workers) -> None:
        self.gr = gr
        self.studio = studio
        self.workers = workers

    def noticed(self, function: Callable[..., Any], num_outputs: int) -> Callable[..., Any]:
        """The function with a notice in front of its outputs; a mistake leaves the rest alone."""

        def call(*values: Any) -> Any:
            try:
                found = function(*values)
            except TransferError as error:
                skipped = [self.gr.skip()] * num_outputs
                found = [pages.notice(str(error), "error"), *skipped]
            return found if num_outputs else found[0]  # one output is no list to Gradio

        return call

    def opened(self, source: Any) -> list[Any]:
        """What a clip that was loaded changes on the page."""
        last = min(source.num_frames, callbacks.MAX_FRAMES) - 1
        pictures = callbacks.frame_pictures(self.studio, source.id, 0)
        choices = [
            chip
            for name in source.classes
            for chip in (f"{name} 1.0", f"{name} 0.5", f"{name} 0.3")
        ]
        offered = [self.gr.update(choices=choices, value=[]) for _ in CONTROL_NAMES]
        return [
            "",
            source.id,
            self.gr.update(maximum=max(last, 1), value=0),
            {"background": pictures.get("input"), "layers": [], "composite": None},
            *offered,
            *[None for _ in CONTROL_NAMES],
        ]

    def draw(self, *values: Any) -> str:
        """The view: clip, controls and weights at the frame; a mistake stands above it."""
        if not values[0]:
            return pages.stage({}, None, "")
        source_id, frame_index, choices = values[0], values[1], _choices(values[2:])
        presets = {name: choice.preset for name, choice in choices.items()}
        try:
            source = callbacks.find_source(self.studio, source_id)
            pictures = callbacks.frame_pictures(self.studio, source_id, frame_index, presets)
        except TransferError as error:
            return pages.notice(str(error), "error")
        title = (
            f"{source.title}: {source.num_frames} frames, {source.width}x{source.height}, "
            f"{source.rate:g} fps"
        )
        try:
            weights = callbacks.effective_weights(self.studio, source_id, choices, frame_index)
        except TransferError as error:
            return pages.notice(str(error), "error") + pages.stage(pictures, None, title)
        return pages.stage(pictures, weights, title)

    def editor_at(self, source: str, index: float) -> Any:
        """The frame to paint on."""
        if not source:
            return self.gr.skip()
        picture = callbacks.frame_pictures(self.studio, source, int(index)).get("input")
        return {"background": picture, "layers": [], "composite": None}

    def kept(self, source: str, index: float, painted: Any, control: str) -> list[Any]:
        """Keep what was painted as the mask of a control, which then acts there."""
        mask_id, share = callbacks.keep_mask(self.studio, source, painted, int(index))
        text = (
            f"The mask of {pages.TITLES[control].lower()} covers {share:.1%} of the clip; "
            "it was followed through all frames."
        )
        ids = [mask_id if name == control else self.gr.skip() for name in CONTROL_NAMES]
        where = ["painted" if name == control else self.gr.skip() for name in CONTROL_NAMES]
        return [pages.notice(text), *ids, *where]

    def submitted(self, *values: Any) -> list[Any]:
        """Queue what is asked for, and show the first job."""
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
        names = callbacks.submit(self.studio, values[0], _choices(values[2:]), look)
        self.workers.ensure()
        said = "Queued." if len(names) == 1 else f"{len(names)} jobs queued."
        return [pages.notice(said), self.gr.update(choices=_job_names(self.studio), value=names[0])]

    def tick(self, name: str | None, before: str) -> list[Any]:
        """What changed since the last look: the list, and the job that is shown."""
        self.workers.ensure()
        found = callbacks.jobs(self.studio)
        names = [job.name for job in found]
        if name not in names:
            name = names[0] if names else None
        job = next((each for each in found if each.name == name), None)
        preview = None if job is None else callbacks.preview_path(self.studio, job)
        stamp = 0 if preview is None else preview.stat().st_mtime_ns
        listing = pages.job_list(found, name)
        state = "" if job is None else job.state
        now = repr((name, state, stamp, len(found)))
        if now == before:  # a clip that plays is not started again
            skipped = [self.gr.skip()] * (3 + len(DOWNLOADS))
            return [self.gr.skip(), listing, *skipped]
        files = callbacks.result_files(self.studio, name)
        buttons = [
            self.gr.update(visible=kind in files, value=str(files[kind]) if kind in files else None)
            for kind, _ in DOWNLOADS
        ]
        return [
            now,
            listing,
            self.gr.update(choices=names, value=name),
            pages.result(job, files, preview),
            *buttons,
            self.gr.update(visible=state in ("waiting", "running")),
        ]

    def cancelled(self, name: str | None) -> list[Any]:
        """Stop the job that is shown."""
        return [pages.notice(f"{callbacks.cancel(self.studio, name)} is cancelled.")]


def _layout(gr: Any, studio: Studio) -> SimpleNamespace:
    """Lay the page out; returns the parts that are wired."""
    source_id = gr.State("")
    seen = gr.State("")
    mask_ids = [gr.State(None) for _ in CONTROL_NAMES]
    gr.HTML(
        "<header><h1>Cosmos Transfer Studio</h1><p>The same world with another look: choose a "
        "clip, say where each control holds, describe the look.</p></header>"
    )
    note = gr.HTML(elem_id="notice")
    with gr.Tabs(elem_id="tabs"):
        with gr.Tab("Studio"), gr.Row(elem_classes="columns"):
            with gr.Column(scale=5, min_width=320, elem_id="left"):
                with gr.Column(elem_classes="card"):
                    gr.HTML("<h2>1 Clip</h2>")
                    scene = gr.Dropdown(
                        list(callbacks.scene_names(studio)),
                        value="tabletop",
                        label="Built-in scene or recording",
                    )
                    open_scene = gr.Button("Open scene", elem_id="open-scene")
                    upload = gr.File(
                        label="Or upload a clip",
                        type="filepath",
                        height=132,
                        elem_id="upload",
                    )
                with gr.Column(elem_classes="card"):
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
                            brush=gr.Brush(default_size=10, colors=["#e69f00"], color_mode="fixed"),
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
                with gr.Column(elem_classes="card"):
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
                            value=0,
                            label="Steps, 0 = auto",
                            precision=0,
                            minimum=0,
                            min_width=120,
                        )
                        guidance = gr.Number(
                            value=0, label="Guidance, 0 = auto", minimum=0, min_width=120
                        )
                        frames = gr.Number(
                            value=0,
                            label="Frames, 0 = all",
                            precision=0,
                            minimum=0,
                            min_width=120,
                        )
                    run = gr.Button("Run", variant="primary", elem_id="run")
            with gr.Column(scale=7, min_width=320, elem_id="right"):
                with gr.Column(elem_classes="card"):
                    gr.HTML("<h2>View</h2>")
                    view = gr.HTML(pages.stage({}, None, ""), elem_id="view")
                    frame = gr.Slider(
                        0, 1, value=0, step=1, label="Frame", buttons=[], elem_id="frame"
                    )
                with gr.Column(elem_classes="card"):
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
                with gr.Column(elem_classes="card"):
                    gr.HTML("<h2>Jobs</h2>")
                    listed = gr.HTML(pages.job_list((), None), elem_id="jobs")
        with gr.Tab("Primitives"):
            primitives.build_tab(gr)
    return SimpleNamespace(
        source_id=source_id,
        seen=seen,
        mask_ids=mask_ids,
        note=note,
        scene=scene,
        open_scene=open_scene,
        upload=upload,
        sliders=sliders,
        details=details,
        editor=editor,
        mask_for=mask_for,
        keep=keep,
        prompt=prompt,
        looks=looks,
        seed=seed,
        variants=variants,
        steps=steps,
        guidance=guidance,
        frames=frames,
        run=run,
        view=view,
        frame=frame,
        chosen=chosen,
        shown=shown,
        downloads=downloads,
        stop=stop,
        listed=listed,
        steering=[
            source_id,
            frame,
            *sliders,
            *[part for each in details for part in each],
            *mask_ids,
        ],
    )


def _wire(gr: Any, page: Any, parts: SimpleNamespace, actions: Actions) -> None:
    """Let every part do what it is for. Public endpoints have names."""
    noticed = actions.noticed
    flat = [part for each in parts.details for part in each]
    opened_outputs = [
        parts.note,
        parts.source_id,
        parts.frame,
        parts.editor,
        *[each[1] for each in parts.details],
        *parts.mask_ids,
    ]
    plain = {"show_progress": "hidden", "concurrency_limit": 4}
    for trigger, call, name in (
        (
            parts.open_scene.click,
            lambda each: actions.opened(callbacks.load_scene(actions.studio, each)),
            "open_scene",
        ),
        (
            parts.upload.upload,
            lambda each: actions.opened(callbacks.load_upload(actions.studio, each)),
            "load_clip",
        ),
    ):
        trigger(
            noticed(call, len(opened_outputs) - 1),
            [parts.scene if name == "open_scene" else parts.upload],
            opened_outputs,
            api_name=name,
            api_description="Load a clip; returns a notice and its id.",
        ).then(actions.draw, parts.steering, [parts.view], api_visibility="private", **plain)
    gr.on(
        [part.change for part in (*parts.sliders, *flat, *parts.mask_ids)] + [parts.frame.change],
        actions.draw,
        parts.steering,
        [parts.view],
        trigger_mode="always_last",
        api_visibility="private",
        **plain,
    )
    parts.frame.release(
        actions.editor_at,
        [parts.source_id, parts.frame],
        [parts.editor],
        api_visibility="private",
        **plain,
    )
    parts.keep.click(
        noticed(actions.kept, 2 * len(CONTROL_NAMES)),
        [parts.source_id, parts.frame, parts.editor, parts.mask_for],
        [parts.note, *parts.mask_ids, *[each[0] for each in parts.details]],
        api_name="keep_mask",
        api_description="Follow what was painted through the clip, for one control.",
    )
    parts.run.click(
        noticed(actions.submitted, 1),
        [
            *parts.steering,
            parts.prompt,
            parts.looks,
            parts.seed,
            parts.variants,
            parts.steps,
            parts.guidance,
            parts.frames,
        ],
        [parts.note, parts.chosen],
        api_name="run",
        api_description="Queue jobs; returns a notice and the first one's name.",
        concurrency_limit=4,
    )
    watched = [parts.seen, parts.listed, parts.chosen, parts.shown, *parts.downloads, parts.stop]
    gr.on(
        [page.load, gr.Timer(POLL_S).tick, parts.chosen.input],
        actions.tick,
        [parts.chosen, parts.seen],
        watched,
        api_visibility="private",
        show_progress="hidden",
        concurrency_limit=8,
    )
    parts.stop.click(
        noticed(actions.cancelled, 0),
        [parts.chosen],
        [parts.note],
        api_name="cancel",
        api_description="Stop a job that waits or runs.",
    )


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
    ).set(
        # Dark enough for contrast AA on white and on the panels.
        body_text_color_subdued="#475569",
        block_label_text_color="#334155",
        block_title_text_color="#334155",
        block_info_text_color="#475569",
        button_primary_background_fill="#0f766e",
        button_primary_background_fill_hover="#115e59",
        slider_color="#0f766e",
        button_large_radius="8px",
        button_small_radius="8px",
        block_radius="8px",
        input_radius="8px",
    )
    page.queue(max_size=200).launch(
        server_name=host,
        server_port=port or None,
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
