"""Compiling the kernels: which compiler, what happens without one, never those of other sources."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from ngpc.backends import compiled

STAND_IN = '#!/bin/sh\nfor last; do :; done\necho "$@" >> {log}\n: > "$last"\n'
PROJECT = """
[project]
name = "stand-in"
version = "1"
requires-python = ">=3.11"
[tool.hatch.build]
dev-mode-dirs = ["."]
[tool.hatch.build.targets.wheel]
packages = ["ngpc"]
[tool.hatch.build.targets.wheel.hooks.custom]
path = "hatch_build.py"
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that makes empty files and notes what it was asked."""
    log, path = tmp_path / "asked.txt", tmp_path / "compiler"
    path.write_text(STAND_IN.format(log=log))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(path))
    return log


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Path:
    """The sources of the kernels and the hook, in a small project of their own."""
    root = tmp_path / "project"
    package = root / "ngpc" / "backends"
    (package / "cpu" / "src").mkdir(parents=True)
    for path in (repository / "ngpc" / "backends" / "cpu" / "src").iterdir():
        (package / "cpu" / "src" / path.name).write_bytes(path.read_bytes())
    (package / "compiled.py").write_bytes(Path(compiled.__file__).read_bytes())
    (package / "__init__.py").touch()
    (root / "hatch_build.py").write_bytes((repository / "hatch_build.py").read_bytes())
    (root / "pyproject.toml").write_text(PROJECT)
    return root


def build(project: Path, version: str = "standard") -> Path:
    folder = project.parent / "wheels"
    return Path(next(WheelBuilder(str(project)).build(directory=str(folder), versions=[version])))


def wheel_names(path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", path], capture_output=True, text=True, check=True
    )
    return [line.split()[0] for line in done.stdout.splitlines()]


def test_every_source_is_compiled_for_every_instruction_set(stand_in: Path, tmp_path: Path) -> None:
    (tmp_path / "kernels-0.so").touch()
    target = compiled.compile_kernels(tmp_path)
    assert [path.name for path in tmp_path.glob("kernels-*")] == [compiled.library_name()]
    assert target.name == compiled.library_name()
    asked = stand_in.read_text().splitlines()
    sets = compiled.instruction_sets()
    assert len(asked) == len(compiled.ONCE) + len(compiled.PER_INSTRUCTIONS) * len(sets) + 1
    assert not any("-march=native" in line for line in asked)
    for name, flags in sets.items():
        lines = [line for line in asked if f"-DNGPC_INSTRUCTIONS={name}" in line]
        assert len(lines) == len(compiled.PER_INSTRUCTIONS)
        assert all(flag in line for flag in flags for line in lines)


@pytest.mark.parametrize("variable", ["CXX", "CC"])
def test_a_compiler_that_fails_is_named(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(variable, "/bin/false")
    with pytest.raises(compiled.CompilationError, match="/bin/false failed: exit code 1"):
        compiled.compile_kernels(tmp_path)
    monkeypatch.setenv(variable, "/no/such/compiler")
    with pytest.raises(compiled.CompilationError, match="No such file"):
        compiled.compile_kernels(tmp_path)
    assert list(tmp_path.glob("kernels-*")) == []


def test_no_compiler_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CXX", "CC"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(compiled.CompilationError, match="none of c\\+\\+, g\\+\\+, clang\\+\\+"):
        compiled.find_compiler()


def test_a_wheel_with_a_compiler_is_for_this_platform_and_carries_the_kernels(
    stand_in: Path, project: Path
) -> None:
    wheel = build(project)
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    assert [name for name in wheel_names(wheel) if "kernels-" in name] == [
        f"ngpc/backends/cpu/{compiled.library_name()}"
    ]
    assert list((project / "ngpc" / "backends" / "cpu").glob("kernels-*")) == []


def test_a_wheel_without_a_compiler_is_for_every_platform(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    wheel = build(project)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any("kernels-" in name for name in wheel_names(wheel))
    assert "ngpc without compiled kernels: /bin/false failed" in "".join(capsys.readouterr())


def test_an_editable_install_compiles_into_the_tree_and_a_wheel_takes_it_from_there(
    stand_in: Path, project: Path
) -> None:
    build(project, "editable")
    (kernels,) = (project / "ngpc" / "backends" / "cpu").glob("kernels-*")
    assert kernels.name == compiled.library_name()
    asked = stand_in.read_text()
    assert f"ngpc/backends/cpu/{kernels.name}" in wheel_names(build(project))
    assert stand_in.read_text() == asked  # not compiled again


def test_kernels_of_other_sources_are_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    (tmp_path / "kernels-0123456789abcdef.so").touch()
    assert compiled.library_path() is None
    (tmp_path / compiled.library_name()).touch()
    assert compiled.library_path() == tmp_path / compiled.library_name()
