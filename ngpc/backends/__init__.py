"""Implementations of the ops. ``reference`` is their definition; see :mod:`.registry`."""
