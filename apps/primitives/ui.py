"""The tab of the primitives: layout and wiring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from apps.primitives import callbacks
from apps.studio import pages


def build_tab(gr: Any) -> None:
    """Lay the tab out where Gradio is building."""
    from ngpc.backends.registry import AUTO, BACKENDS
    from ngpc.errors import NgpcError

    with gr.Row(elem_classes="columns"):
        with gr.Column(scale=5, min_width=320, elem_classes="card"):
            gr.HTML("<h2>Fit a picture</h2>")
            upload = gr.File(label="A picture; without one, a sample", type="filepath", height=132)
            steps = gr.Slider(4, 512, value=128, step=4, label="Steps of the fit", buttons=[])
            backend = gr.Dropdown(
                [AUTO, *(each.name for each in BACKENDS)], value=AUTO, label="Backend"
            )
            fit = gr.Button("Fit", variant="primary", elem_id="fit")
        with gr.Column(scale=7, min_width=320, elem_classes="card"):
            gr.HTML("<h2>Field</h2>")
            shown = gr.HTML(
                '<p class="quiet">A hash grid and a small network learn the picture here.</p>',
                elem_id="field",
            )

    def fitted(path: str | None, num_steps: float, name: str) -> Iterator[str]:
        try:
            image = callbacks.load_picture(path)
            target = np.clip(image.rgb_srgb * 255 + 0.5, 0, 255).astype(np.uint8)
            for stage in callbacks.fit_picture(image, num_steps=int(num_steps), backend=name):
                pictures = pages.figure(target, "Picture") + pages.figure(stage.picture, "Field")
                yield (
                    f'<div class="stage two">{pictures}</div>{callbacks.curve_picture(stage.curve)}'
                )
        except NgpcError as error:
            yield pages.notice(str(error), "error")

    fit.click(
        fitted,
        [upload, steps, backend],
        [shown],
        api_name="fit_picture",
        api_description="Fit a field to a picture; HTML of each stage, the curve of PSNR below.",
        concurrency_limit=1,
        show_progress="hidden",
    )
