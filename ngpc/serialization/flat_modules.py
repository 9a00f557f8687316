"""``Encoding``, ``Network`` and ``NetworkWithInputEncoding`` in safetensors files.

The file holds the one vector ``params`` in tiny-cuda-nn's layout, and in its header all that
rebuilds the module. No backend is recorded: a module trained on one is loaded on any.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from ngpc.backends.registry import AUTO
from ngpc.config import encoding_to_json, network_to_json
from ngpc.data.images import replace_file
from ngpc.data.tensor_files import read_tensors
from ngpc.errors import CheckpointError, explain
from ngpc.fields.flat import Encoding, FlatModule, Network, NetworkWithInputEncoding

FORMAT = "ngpc module 1"
_DTYPES = {str(dtype): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32,
                                           torch.float64)}  # fmt: skip


def save_module(module: FlatModule, path: Path) -> None:
    """Write a module. The file appears complete or not at all."""
    description: dict[str, Any] = {
        "kind": type(module).__name__,
        "n_input_dims": module.n_input_dims,
        "n_output_dims": module.n_output_dims,
        "seed": module.seed,
        "dtype": str(module.dtype),
    }
    if module.encoding is not None:
        description["encoding"] = encoding_to_json(module.encoding)
    if module.network is not None:
        description["network"] = network_to_json(module.network)
    params = module.params.detach().cpu().contiguous()
    header = {"format": FORMAT, "module": json.dumps(description)}
    replace_file(Path(path), save({"params": params}, header))


def load_module(path: Path, *, backend: str = AUTO) -> FlatModule:
    """Read a module that :func:`save_module` wrote.

    Raises:
        MediaError: there is no such file.
        CheckpointError: the file holds something else, or parameters that do not fit.
    """
    metadata, tensors = read_tensors(
        Path(path), FORMAT, what="a saved module", writer="save_module"
    )
    try:
        module = _build(json.loads(metadata["module"]), backend)
        module = module.to(tensors["params"].dtype)
        module.load_params(tensors["params"])
    except (KeyError, TypeError, ValueError, CheckpointError) as error:
        raise CheckpointError(
            explain(
                str(path),
                expected="parameters that fit the header",
                got=" ".join(str(error).split()),
                do="The file is damaged or was edited: save the module again.",
            )
        ) from error
    return module


def _build(description: dict[str, Any], backend: str) -> FlatModule:
    num_inputs, num_outputs = description["n_input_dims"], description["n_output_dims"]
    options: dict[str, Any] = {"dtype": _DTYPES[description["dtype"]], "backend": backend}
    seed = description["seed"]
    match description["kind"]:
        case "Encoding":
            return Encoding(num_inputs, description["encoding"], seed, **options)
        case "Network":
            return Network(num_inputs, num_outputs, description["network"], seed, **options)
        case "NetworkWithInputEncoding":
            return NetworkWithInputEncoding(
                num_inputs,
                num_outputs,
                description["encoding"],
                description["network"],
                seed,
                **options,
            )
    raise ValueError(f"unknown kind {description['kind']!r}")
