"""Primitives: see a neural field learn. ``callbacks`` are plain functions, ``ui`` the layout."""
