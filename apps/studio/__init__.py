"""The studio: see a clip, paint where each control acts, run it, compare, keep.

``sources`` are what can be worked on, ``masks`` what was painted on them, ``callbacks`` plain
functions from the values of the page to requests and back, ``worker`` the process that makes the
clips, ``pages`` the pictures and the HTML that the page shows, ``ui`` the layout and nothing else.
"""
