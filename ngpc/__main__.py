"""``python -m ngpc``."""

from __future__ import annotations

import sys

from ngpc.cli.main import main

sys.exit(main())
