"""The ``ngpc`` command."""
