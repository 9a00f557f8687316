"""Clips longer than the model's chunk: which frames each chunk makes, and putting them together.

``plan``     the plan of chunks, in whole numbers
``cut``      a chunk's clip, controls and weight maps, read as the chunks come to them
``prompts``  one prompt per time range
``stitch``   the frames every chunk made, cross-faded where two made the same, in order
``store``    finished chunks on disk, for a run that was killed
"""
