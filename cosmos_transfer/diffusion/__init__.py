"""From noise to latents: what a denoiser is, noise schedules, guidance and samplers.

Rectified flow throughout: ``noisy = (1 - sigma) * clean + sigma * noise`` with sigma in [0, 1],
and the velocity ``noise - clean`` equals ``(noisy - denoised) / sigma``. Samplers know a denoiser,
never a network; they follow a decreasing list of sigmas whose last entry is 0.
"""
