"""One file per command; :mod:`~cosmos_transfer.cli.compose` is the border to Hydra.

Nothing here loads torch or Hydra before a command needs it, so that ``--help`` answers at once.
"""
