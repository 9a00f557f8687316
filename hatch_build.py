"""The package build's hook: compiles the kernels of ngpc's ``cpu`` backend where it can.

With a C++ compiler a wheel is for this platform and any Python; without one it is for all, and ngpc
runs on PyTorch alone.
"""

from __future__ import annotations

import importlib.util
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledKernels(BuildHookInterface):
    """Adds the compiled kernels to a wheel, or puts them into the tree of an editable install."""

    PLUGIN_NAME = "custom"
    folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, once for the same sources; say so where that is not possible, and go on."""
        if self.target_name != "wheel":
            return
        compiled = self._load()
        path = compiled.library_path()  # of these very sources, from an editable install
        if path is None:
            self.folder = None if version == "editable" else tempfile.TemporaryDirectory()
            try:
                path = compiled.compile_kernels(
                    self.folder.name if self.folder else compiled.PACKAGE
                )
            except compiled.CompilationError as error:
                self.app.display_warning(f"ngpc without compiled kernels: {error}")
                return
        if version != "editable":
            build_data["force_include"][str(path)] = f"ngpc/backends/cpu/{path.name}"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled beside the wheel."""
        if self.folder is not None:
            self.folder.cleanup()

    def _load(self) -> Any:
        # By its path: importing the package would import torch, which a build does not have.
        path = Path(self.root) / "ngpc" / "backends" / "compiled.py"
        spec = importlib.util.spec_from_file_location("compiled", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
