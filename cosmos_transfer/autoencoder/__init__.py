"""Pixels to latents and back, behind one protocol.

``base``          what the pipeline asks of an autoencoder
``causal_video``  the embedded checkpoint's
``wan``           Wan 2.1's, which Cosmos-Transfer2.5 works in
"""
