"""What goes in: clips, depth, segmentation, masks, prompts, and the request that names them.

Reading and checking need no torch. Files are opened by :mod:`.media` and :mod:`.series`; each
kind of input has one file of its own; :mod:`.validate` opens all that a request names before any
model is loaded.
"""
