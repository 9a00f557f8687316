"""The help texts under docs/cli are the current ones."""

from __future__ import annotations

from pathlib import Path

from cosmos_transfer.cli.main import COMMANDS
from scripts.write_cli_docs import help_texts


def test_committed_help_is_current(repository: Path) -> None:
    texts = help_texts()
    assert set(texts) == {
        "cosmos-transfer.txt",
        *(f"cosmos-transfer-{command.name}.txt" for command in COMMANDS),
    }
    folder = repository / "docs" / "cli"
    committed = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.txt")}
    assert committed == texts, "run make docs-cli"


def test_help_fits_a_page() -> None:
    for name, text in help_texts().items():
        assert text.startswith("usage: cosmos-transfer"), name
        assert max(map(len, text.splitlines())) <= 100, name
