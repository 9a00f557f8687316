"""What an installation carries: code, configs, the embedded checkpoint, and nothing else."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import cosmos_transfer


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    root = Path(__file__).resolve().parents[2]
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(root)).build(directory=str(folder), versions=["standard"])
    return zipfile.ZipFile(built)


def test_the_wheel_carries_every_config(wheel: zipfile.ZipFile, repository: Path) -> None:
    folder = repository / "cosmos_transfer" / "cli" / "configs"
    wanted = {str(path.relative_to(repository)) for path in folder.rglob("*.yaml")}
    assert wanted
    assert wanted <= set(wheel.namelist())


def test_the_wheel_carries_both_packages_and_the_checkpoint(
    wheel: zipfile.ZipFile, repository: Path
) -> None:
    for package in ("cosmos_transfer", "ngpc"):
        files = {
            str(path.relative_to(repository))
            for path in (repository / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert files <= set(wheel.namelist())


def test_the_wheel_carries_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "apps",
        "cosmos_transfer",
        "ngpc",
    }


def test_the_wheel_is_small_enough_to_ship(wheel: zipfile.ZipFile) -> None:
    weights = [info for info in wheel.infolist() if info.filename.endswith(".safetensors")]
    assert sum(info.file_size for info in weights) <= 40 * 2**20
    assert sum(info.compress_size for info in wheel.infolist()) < 45 * 2**20


def test_console_scripts_point_at_functions(repository: Path) -> None:
    from importlib import import_module

    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for target in project["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(import_module(module), name))


def test_the_version_is_that_of_the_package(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
    assert f"\nVersion: {cosmos_transfer.__version__}\n" in wheel.read(metadata).decode()


def test_torchvision_is_no_requirement(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
    assert "torchvision" not in wheel.read(metadata).decode().lower().split("\n\n")[0]


def test_constraints_pin_every_direct_requirement(repository: Path) -> None:
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    lines = (repository / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if "==" in line}
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {each.split(">")[0].split("=")[0].split("<")[0].strip().lower() for each in wanted}
    assert names <= pinned
