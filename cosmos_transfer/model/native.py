"""Reading NVIDIA's own checkpoint files into our networks, strictly, and writing their layout.

A file of Cosmos-Transfer2.5 holds the base and one branch, or several branches by number; what a
branch has in common with the base is in it once. A file of Cosmos-Transfer1 holds a base or a
branch. Every key must be a parameter, a known by-product of training, or (in a branch's file of
Transfer1) the nested copy of the base; everything else is listed.

Files are pickles: they are opened with ``weights_only=True``, which builds tensors and nothing
else.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cosmos_transfer.errors import CheckpointError, explain
from cosmos_transfer.model.branches import SHARED_PARTS
from cosmos_transfer.model.native_keys import (
    TRANSFER1,
    NativeFamily,
    base_names,
    branch_names,
    find_prefix,
    is_ignored,
)

Weights = dict[str, Tensor]


def read_native(path: Path) -> Weights:
    """The tensors of a ``.pt`` file, without the wrappers that trainers put around them.

    Raises:
        CheckpointError: No such file, or anything but tensors in it.
    """
    where = f"checkpoint {path.name}"
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, ValueError, EOFError) as error:
        raise CheckpointError(
            explain(
                where,
                expected="a PyTorch file of tensors alone",
                got=" ".join(str(error).split())[:300],
                do="Fetch it again; a file that holds code is never opened.",
            )
        ) from error
    for wrapper in ("model", "module", "state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping):
        raise CheckpointError(
            explain(
                where,
                expected="a mapping from names to tensors",
                got=type(content).__name__,
                do="Give the checkpoint as NVIDIA publishes it.",
            )
        )
    # Transformer engine leaves bytes and None beside the weights; they are not weights.
    return {str(key): value for key, value in content.items() if isinstance(value, Tensor)}


def base_weights(
    state: Mapping[str, Tensor], base: nn.Module, family: NativeFamily, *, where: str
) -> Weights:
    """The base's weights out of a native file, by our names.

    Keys that belong to branches are left to :func:`branch_weights`; see :func:`check_leftovers`.

    Raises:
        CheckpointError: A parameter of the base is not in the file.
    """
    names = base_names(family, base.state_dict())
    prefix = find_prefix(state, family.base_prefixes, names)
    return _take(state, names, prefix, where=f"{where}, base")


def branch_weights(
    state: Mapping[str, Tensor],
    branch: nn.Module,
    family: NativeFamily,
    *,
    where: str,
    index: int | None = None,
    absent_parts: Sequence[str] = (),
) -> Weights:
    """One branch's weights out of a native file, by our names.

    Args:
        state: The file's tensors.
        branch: Whose parameters are wanted.
        family: Which family's names.
        where: Names the file in messages.
        index: The branch's number in a file of several.
        absent_parts: Submodules of the branch that stand in the file as the base's.
    """
    skipped = tuple(f"{part}." for part in absent_parts)
    wanted = [key for key in branch.state_dict() if not key.startswith(skipped)]
    names = branch_names(family, wanted, index=index)
    prefix = find_prefix(state, family.branch_prefixes, names)
    return _take(state, names, prefix, where=f"{where}, control branch")


def check_leftovers(
    state: Mapping[str, Tensor],
    family: NativeFamily,
    *,
    base: nn.Module | None,
    branches: Sequence[nn.Module],
    where: str,
) -> None:
    """Refuse a file with keys that none of the networks read from it has.

    Raises:
        CheckpointError: Lists every key that is left over.
    """
    read: set[str] = set()
    # A base of another file is nested once more in a branch's: prefixes a branch never has.
    nested = tuple(prefix for prefix in family.base_prefixes if "base_model" in prefix)
    pattern = family.ignored if base is not None else family.branch_ignored
    if base is not None:
        names = base_names(family, base.state_dict())
        prefix = find_prefix(state, family.base_prefixes, names)
        read |= {prefix + name for name in names.values()}
    several = len(branches) > 1
    for index, branch in enumerate(branches):
        names = branch_names(family, branch.state_dict(), index=index if several else None)
        prefix = find_prefix(state, family.branch_prefixes, names)
        read |= {prefix + name for name in names.values()}
    left = [
        key
        for key in sorted(state.keys() - read)
        if not is_ignored(key, pattern) and not (base is None and nested and key.startswith(nested))
    ]
    if left:
        raise CheckpointError(
            explain(
                where,
                expected=f"weights of {family.name} alone",
                got=f"{len(left)} keys without a parameter: {', '.join(left)}",
                do="Map them in model/native_keys.py, or give the file of the right family.",
            )
        )


def to_native(
    family: NativeFamily,
    *,
    base: Mapping[str, Tensor] | None = None,
    branches: Sequence[Mapping[str, Tensor]] = (),
) -> Weights:
    """Weights by our names as NVIDIA would write them into one file.

    Args:
        family: Which family's names.
        base: The base's ``state_dict``.
        branches: The branches'; where there is a base of Transfer2.5 too, what they share with
            it is written once.
    """
    state: Weights = {}
    if base is not None:
        state |= {f"net.{name}": base[key] for key, name in base_names(family, base).items()}
    shared = () if family is TRANSFER1 or base is None else tuple(SHARED_PARTS.values())
    several = len(branches) > 1
    for index, branch in enumerate(branches):
        own = [key for key in branch if key.split(".")[0] not in shared]
        names = branch_names(family, own, index=index if several else None)
        state |= {f"net.{name}": branch[key] for key, name in names.items()}
    return state


def _take(
    state: Mapping[str, Tensor], names: Mapping[str, str], prefix: str, *, where: str
) -> Weights:
    missing = [prefix + name for name in names.values() if prefix + name not in state]
    if missing:
        raise CheckpointError(
            explain(
                where,
                expected="every weight of the network",
                got=f"{len(missing)} missing: {', '.join(missing)}",
                do="Give a whole file of the right family.",
            )
        )
    return {ours: state[prefix + name] for ours, name in names.items()}
