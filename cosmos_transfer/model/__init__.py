"""The denoising network and its control branches; single-device code that knows no sampler.

``diffusers_compat``  the network classes, and the one stand-in they need without torchvision
``branches``          control latents -> one residual per controlled block; new branches from a base
``controlled``        base, branches and fusion behind a denoiser
``checkpoint``        finding, describing, loading and writing all parts of a checkpoint

Importing this package loads no torch; neither does reading what a checkpoint says of itself.
"""
