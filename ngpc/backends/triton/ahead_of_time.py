"""Compile every kernel for GPUs that are not here, and read what it takes on the chip.

Triton brings NVIDIA's assembler, so that no GPU and no CUDA toolkit are needed. Kernels must have
been imported without ``TRITON_INTERPRET``.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ngpc.backends.triton import grid_kernels, hash_grid, mlp, mlp_kernels
from ngpc.backends.triton.precision import LAUNCH_OPTIONS, num_warps, points_per_program
from ngpc.config import Activation

ARCHITECTURES = (80, 86, 90, 100, 120)
PRECISIONS = {"fp32": 32, "fp16": 16, "bf16": 16}  # and bits each
SHARED_MEMORY_LIMIT = {80: 163, 86: 99, 90: 227, 100: 227, 120: 99}  # KiB one program may use
WARP_SIZE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase:
    """One kernel in its default configuration: types of its arguments and its constants."""

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, int]
    num_warps: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What one compiled kernel takes: per program, and per thread."""

    kernel: str
    precision: str
    architecture: int
    shared_bytes: int
    registers: int
    spilled_bytes: int

    def __str__(self) -> str:
        """One line of a table."""
        return (
            f"sm_{self.architecture:<4} {self.precision:5} {self.kernel:18} "
            f"shared {self.shared_bytes / 1024:6.1f} KiB  registers {self.registers:3d}  "
            f"spilled {self.spilled_bytes} B"
        )


def kernel_cases(precision: str) -> Iterator[KernelCase]:
    """Every kernel as the defaults launch it: L = 16, F = 2, three dimensions; MLP 32-64-64-16."""
    number = f"*{precision}"
    grid_types = {"positions": "*fp32", "scales": "*fp32", "levels": "*i64", "num_points": "i32"}
    grid_constants = {"num_levels": 16, "num_dims": 3, "num_features": 2, "interpolation": 1}
    yield KernelCase(
        name="encode",
        kernel=grid_kernels.encode_kernel,
        types=grid_types | {"table": number, "outputs": number},
        constants=grid_constants | {"block": hash_grid.BLOCK},
    )
    yield KernelCase(
        name="table_gradient",
        kernel=grid_kernels.table_gradient_kernel,
        types=grid_types | {"upstream": number, "gradient": "*fp32"},
        constants=grid_constants | {"block": hash_grid.BLOCK},
    )
    yield KernelCase(
        name="position_gradient",
        kernel=grid_kernels.position_gradient_kernel,
        types=grid_types | {"table": number, "upstream": number, "gradient": "*fp32"},
        constants=grid_constants | {"block": hash_grid.POSITION_BLOCK},
    )
    bits = PRECISIONS[precision]
    block, warps = points_per_program(bits), num_warps(bits)
    relu = mlp_kernels.ACTIVATION_CODES[Activation.RELU]
    none = mlp_kernels.ACTIVATION_CODES[Activation.NONE]
    sizes = {"num_points": "i32", "num_inputs": "i32", "num_outputs": "i32"}
    mlp_constants = {
        "num_hidden": 2,
        "input_block": 32,
        "width": 64,
        "output_block": 16,
        "activation": relu,
        "output_activation": none,
        "block": block,
    }
    yield KernelCase(
        name="mlp_forward",
        kernel=mlp_kernels.forward_kernel,
        types=sizes
        | dict.fromkeys(("inputs", "weights", "outputs", "saved", "saved_output"), number),
        constants=mlp_constants | {"is_kept": 1},
        num_warps=warps,
    )
    pointers = (
        "upstream", "weights", "saved", "saved_output", "layer_gradients", "output_gradient",
        "input_gradient",
    )  # fmt: skip
    yield KernelCase(
        name="layer_gradient",
        kernel=mlp_kernels.layer_gradient_kernel,
        types=sizes | dict.fromkeys(pointers, number),
        constants=mlp_constants | {"needs_inputs": 1},
        num_warps=warps,
    )
    integers = (
        "num_points", "upstream_stride", "hidden_stride", "num_rows", "num_columns",
        "points_per_program",
    )  # fmt: skip
    yield KernelCase(
        name="matrix_gradient",
        kernel=mlp_kernels.matrix_gradient_kernel,
        types=dict.fromkeys(integers, "i32")
        | {"upstream": number, "hidden": number, "gradient": "*fp32"},
        constants={
            "activation": relu,
            "row_block": mlp.GRADIENT_TILE,
            "column_block": mlp.GRADIENT_TILE,
            "block": block,
        },
        num_warps=warps,
    )


def compile_case(case: KernelCase, *, precision: str, architecture: int) -> Footprint:
    """Compile one kernel for one architecture, and assemble it again to read its footprint."""
    names = case.kernel.arg_names
    signature = {name: case.types.get(name, "constexpr") for name in names}
    # PyTorch's allocations are aligned; a launch finds that out, here it is said.
    aligned = [["tt.divisibility", 16]]
    attributes = {(i,): aligned for i, name in enumerate(names) if signature[name].startswith("*")}
    source = ASTSource(case.kernel, signature, constexprs=case.constants, attrs=attributes)
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", architecture, WARP_SIZE),
        options=LAUNCH_OPTIONS | {"num_warps": case.num_warps},
    )
    report = _assemble(compiled.asm["ptx"], architecture)
    registers = re.search(r"Used (\d+) registers", report)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    assert registers, report
    assert spills, report
    return Footprint(
        kernel=case.name,
        precision=precision,
        architecture=architecture,
        shared_bytes=compiled.metadata.shared,
        registers=int(registers[1]),
        spilled_bytes=int(spills[1]) + int(spills[2]),
    )


def _assemble(ptx: str, architecture: int) -> str:
    """What the assembler says about registers and spills."""
    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    newer = assembler.with_name("ptxas-blackwell")  # beside it where one release is not enough
    if newer.exists() and architecture >= 90:
        assembler = newer
    target = re.search(r"\.target (sm_\w+)", ptx)
    assert target, ptx[:200]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "kernel.ptx"
        path.write_text(ptx, encoding="utf-8")
        command = [str(assembler), "-v", f"--gpu-name={target[1]}", str(path)]
        command += ["-o", str(path.with_suffix(".o"))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr + done.stdout
