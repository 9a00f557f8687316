"""cosmos-transfer app, before its page: help, who may come in, what must be there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cosmos_transfer.cli import app
from cosmos_transfer.cli.main import main
from cosmos_transfer.errors import ConfigError, MediaError


def test_help_loads_neither_torch_nor_gradio() -> None:
    code = (
        "import contextlib, sys\n"
        "from cosmos_transfer.cli.main import main\n"
        "with contextlib.suppress(SystemExit):\n    main(['app', '--help'])\n"
        "assert not {'torch', 'gradio', 'cv2', 'av'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "127.0.0.1" in done.stdout


def test_people_are_read_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "people"
    path.write_text("ada:tri:angle\n\nbo:x\n")
    assert app.read_people(path) == (("ada", "tri:angle"), ("bo", "x"))


@pytest.mark.parametrize("content", ["", "ada\n", "ada:\n", ":x\n"])
def test_people_without_a_password_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "people"
    path.write_text(content)
    with pytest.raises(ConfigError, match="NAME:PASSWORD"):
        app.read_people(path)
    with pytest.raises(MediaError, match="--auth"):
        app.read_people(tmp_path / "nobody")


def test_without_gradio_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "find_spec", lambda name: None)
    assert main(["app"]) == 2
    assert "pip install 'cosmos-transfer[app]'" in capsys.readouterr().err
