"""Reading JSON that others wrote: one way to say that it cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cosmos_transfer.errors import MediaError, explain
from cosmos_transfer.inputs.series import require_exists


def read_json(path: Path, *, what: str, do: str = "Give the file as it was written.") -> Any:
    """The parsed content of a JSON file.

    Args:
        path: The file; a byte-order mark is passed over.
        what: What it should hold, for errors.
        do: What to do about it, for errors.

    Raises:
        MediaError: It is missing, is not JSON in UTF-8, or is nested too deeply to be parsed.
    """
    require_exists(path, what=f"{what} (JSON)")
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
    except RecursionError:
        reason = "brackets nested too deeply"
    raise MediaError(explain(str(path), expected=f"{what} in JSON", got=reason, do=do))
