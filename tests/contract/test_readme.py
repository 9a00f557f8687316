"""What README and docs say can be typed, and where they point, is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cosmos_transfer.cli.compose import compose
from cosmos_transfer.cli.generate import HELP
from cosmos_transfer.cli.main import COMMANDS
from cosmos_transfer.config import GenerateSettings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name != "LICENSE.md"
)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = re.findall(
        r"`((?:cosmos_transfer|ngpc|tests|scripts|configs)/[\w/.]+)`",
        page.read_text(encoding="utf-8"),
    )
    for name in named:
        assert (ROOT / name).exists(), f"{page.name}: {name}"


def typed_lines() -> list[str]:
    """Every request that README, the help text and the experiments tell people to type."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"`(cosmos-transfer generate [^`]+)`", readme)
    found += [
        f"cosmos-transfer generate {rest}" for rest in re.findall(r"`\.\.\. ([^`]+)`", readme)
    ]
    found += re.findall(r"^  (cosmos-transfer generate .+=.+)$", HELP, re.MULTILINE)
    for path in (ROOT / "cosmos_transfer/cli/configs/experiment").glob("*.yaml"):
        text = path.read_text(encoding="utf-8").replace("\\\n#", " ")
        found += re.findall(r"^# Run:\s+(cosmos-transfer generate .+)$", text, re.MULTILINE)
    return found


def test_there_are_lines_to_try() -> None:
    assert len(typed_lines()) >= 10


@pytest.mark.parametrize("line", typed_lines())
def test_a_line_to_type_is_taken(line: str) -> None:
    overrides = shlex.split(line.partition("#")[0])[2:]
    assert compose("generate", overrides, GenerateSettings) != GenerateSettings()


def test_readme_lists_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"| `cosmos-transfer {command.name}` |" in readme
