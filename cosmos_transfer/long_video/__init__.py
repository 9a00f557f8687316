"""Clips longer than the model's chunk: which frames each chunk makes, and putting them together.

``plan``    the plan of chunks, in whole numbers
``stitch``  the frames every chunk made, as one clip of exactly the input's length
"""
