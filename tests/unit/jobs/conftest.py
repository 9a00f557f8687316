"""Ray is no part of the development tools: its tests are collected where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("ray") else ["test_on_ray.py"]
