"""Weights that live on the host or on disk, compressed, and are expanded where they are used.

``bitmap``     the codec: one bit an element, and the values that are not zero; three decoders
``files``      compressed checkpoint files: written once, read tensor by tensor
``prune``      which weights become zero, and what that costs
``options``    tiles, eight bits, host and disk for a loaded model
``streaming``  blocks whose weights are fetched while the block before them computes
"""
