"""Write the help text of every command to docs/cli/; `make docs-cli` runs it.

tests/contract/test_cli_docs.py fails where a committed text is not the current one.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from cosmos_transfer.cli.main import COMMANDS, main

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "cli"


def help_texts() -> dict[str, str]:
    """The file name of each command's help text, and the text."""
    texts = {"cosmos-transfer.txt": _printed_by(["--help"])}
    for command in COMMANDS:
        texts[f"cosmos-transfer-{command.name}.txt"] = _printed_by([command.name, "--help"])
    return texts


def _printed_by(argv: list[str]) -> str:
    # argparse breaks lines at the width of the terminal, and newer Pythons colour them.
    os.environ.update(COLUMNS="100", NO_COLOR="1")
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.suppress(SystemExit):
        main(argv)
    return stdout.getvalue()


def write() -> None:
    """Write every text, and remove those of commands that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    texts = help_texts()
    for stale in {path.name for path in FOLDER.glob("*.txt")} - set(texts):
        (FOLDER / stale).unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
