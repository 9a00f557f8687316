"""How well the embedded model follows controls, prompts and masks on held-out clips; how fast.

    python -m benchmarks.embedded                            all, 48 clips (make bench-embedded)
    python -m benchmarks.embedded --clips 4 --only table     a quick look
    python -m benchmarks.embedded --workers 2 --minutes 20   as many clips as that allows
    python -m benchmarks.embedded --checkpoint embedded-fast --only table,classifier,timing
                                                             what it keeps of embedded

One file a part, each of which ``--only`` can pick:

``table``       Every metric against the given controls, for outputs made with no control, with all
                four at 0.25, with each alone at 1; beside them the **true render** of the scene,
                and a **shuffled** one, of another scene of the same family (chance). Then the share
                of the gap closed: (with - without) / (true - without).
``sharpness``   Gradient energy of outputs over that of true renders; flicker along the true motion,
                the same way.
``classifier``  Does a classifier trained on true renders read the prompt's attributes off outputs
                as often as off held-out true renders?
``prompts``     The same clip and seed under a night, a day and a snow prompt, all four controls at
                0.25: is night darker than day, is the ground whiter in snow (driving clips)?
                True renders under the same looks are asked the same.
``diversity``   How far outputs of six prompts lie apart, over how far true renders of the six do.
                The distance is one of the classifier's maps.
``seeds``       How far outputs of six seeds of one prompt lie apart.
``regions``     Some controls on things, the others on what is behind them, and the other way round:
                the metrics inside and outside, beside the published table.
``mask``        Edge control with weight 1 on the left half and 0 on the right: how much edge F1
                changes on either half, against no control.
``mujoco``      Arm scenes of another simulator, never trained on: metrics of outputs over those of
                the simulator's own frames. Needs ``mujoco`` and a library to draw off-screen
                (``MUJOCO_GL=egl`` or ``osmesa``); left out, with the reason, without.
``timing``      Seconds for 12 steps with guidance and all four controls, after one warm-up; for a
                checkpoint of fewer steps, as it is shipped.

All outputs of one clip start from the same noise and are at the checkpoint's native size and
length. Clip after clip is measured by all parts, which share its outputs. Depth and masks of an
output are found by the checkpoint's predictors; their error on true renders is the floor. The input
of blur SSIM is the clip that went in, the simulator's view, in whose flat colours no render is: a
true render is far from 1 there. A second column holds outputs against the true render of the look
that the prompt names, where the true render is 1; it is what the published metric's input, a real
video, is to us.
"""
