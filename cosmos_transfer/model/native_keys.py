"""NVIDIA's own weight names and diffusers', for both published families.

One direction is written down: from a parameter's name in our networks to its name in NVIDIA's
files. The other is its inverse, taken over the parameters of the network at hand, so that a name
that no parameter has cannot be mapped silently.

Source:
    The published module definitions, and diffusers' ``convert_cosmos_to_diffusers.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cosmos_transfer.errors import CheckpointError, explain

Rules = tuple[tuple[str, str], ...]

# Inside a block of Cosmos-Transfer2.5.
_BLOCK_2_5: Rules = (
    (r"\.norm1\.linear_(\d)\.", r".adaln_modulation_self_attn.\1."),
    (r"\.norm2\.linear_(\d)\.", r".adaln_modulation_cross_attn.\1."),
    (r"\.norm3\.linear_(\d)\.", r".adaln_modulation_mlp.\1."),
    (r"\.attn1\.", ".self_attn."),
    (r"\.attn2\.", ".cross_attn."),
    (r"\.to_([qkv])\.", r".\1_proj."),
    (r"\.norm_([qk])\.", r".\1_norm."),
    (r"\.to_out\.0\.", ".output_proj."),
    (r"\.ff\.net\.0\.proj\.", ".mlp.layer1."),
    (r"\.ff\.net\.2\.", ".mlp.layer2."),
)
_TIME_2_5: Rules = (
    (r"^time_embed\.t_embedder\.", "t_embedder.1."),
    (r"^time_embed\.norm\.", "t_embedding_norm."),
)
_BASE_2_5: Rules = (
    (r"^patch_embed\.proj\.", "x_embedder.proj.1."),
    (r"^transformer_blocks\.", "blocks."),
    (r"^norm_out\.linear_(\d)\.", r"final_layer.adaln_modulation.\1."),
    (r"^proj_out\.", "final_layer.linear."),
    *_TIME_2_5,
    *_BLOCK_2_5,
)
_BRANCH_2_5: Rules = (
    (r"^patch_embed\.proj\.", "control_embedder.proj.1."),
    (r"^patch_embed_base\.proj\.", "x_embedder.proj.1."),
    *_TIME_2_5,
    *_BLOCK_2_5,
)

# Inside a block of Cosmos-Transfer1: three numbered sub-blocks.
_BLOCK_1: Rules = (
    (r"\.norm1\.linear_(\d)\.", r".blocks.0.adaLN_modulation.\1."),
    (r"\.norm2\.linear_(\d)\.", r".blocks.1.adaLN_modulation.\1."),
    (r"\.norm3\.linear_(\d)\.", r".blocks.2.adaLN_modulation.\1."),
    (r"\.attn1\.", ".blocks.0.block.attn."),
    (r"\.attn2\.", ".blocks.1.block.attn."),
    (r"\.to_([qkv])\.", r".to_\1.0."),
    (r"\.norm_([qk])\.", r".to_\1.1."),
    (r"\.ff\.net\.0\.proj\.", ".blocks.2.block.layer1."),
    (r"\.ff\.net\.2\.", ".blocks.2.block.layer2."),
)
_REST_1: Rules = (
    (r"^time_embed\.t_embedder\.", "t_embedder.1."),
    (r"^time_embed\.norm\.", "affline_norm."),
    (r"^learnable_pos_embed\.", "extra_pos_embedder."),
)
_BASE_1: Rules = (
    (r"^patch_embed\.proj\.", "x_embedder.proj.1."),
    (r"^transformer_blocks\.(\d+)\.", r"blocks.block\1."),
    (r"^norm_out\.linear_(\d)\.", r"final_layer.adaLN_modulation.\1."),
    (r"^proj_out\.", "final_layer.linear."),
    *_REST_1,
    *_BLOCK_1,
)
_BRANCH_1: Rules = (
    (r"^patch_embed\.proj\.", "x_embedder2.proj.1."),
    (r"^patch_embed_base\.proj\.", "x_embedder.proj.1."),
    (r"^control_blocks\.(\d+)\.", r"blocks.block\1."),
    (r"^zero_blocks\.(\d+)\.", r"zero_blocks.block\1."),
    (r"^hint_layers\.", "input_hint_block."),
    *_REST_1,
    *_BLOCK_1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFamily:
    """How one family's files name and nest weights.

    ``base_prefixes`` and ``branch_prefixes`` are tried in order, the longest first. ``ignored``
    matches what a file may hold besides weights of the network: training counters, tables that
    are computed, the head of a branch that never speaks.
    """

    name: str
    base: Rules
    branch: Rules
    base_prefixes: tuple[str, ...]
    branch_prefixes: tuple[str, ...]
    ignored: str
    branch_ignored: str


_EVERYWHERE = r"(^|\.)(accum_\w+|_extra_state|pos_embedder\.\w+)$"

TRANSFER2_5 = NativeFamily(
    name="Cosmos-Transfer2.5",
    base=_BASE_2_5,
    branch=_BRANCH_2_5,
    base_prefixes=("net.", ""),
    branch_prefixes=("net.", ""),
    ignored=_EVERYWHERE,
    branch_ignored=_EVERYWHERE,
)
TRANSFER1 = NativeFamily(
    name="Cosmos-Transfer1",
    base=_BASE_1,
    branch=_BRANCH_1,
    base_prefixes=("net.base_model.net.", "base_model.net.", "net.", ""),
    branch_prefixes=("net.net_ctrl.", "net.", ""),
    ignored=_EVERYWHERE + r"|(^|\.)logvar\.",
    branch_ignored=_EVERYWHERE + r"|(^|\.)logvar\.|(^|\.)final_layer\.",
)


def base_names(family: NativeFamily, parameters: Iterable[str]) -> dict[str, str]:
    """Name of a base's parameter -> its name in NVIDIA's file, without a prefix."""
    return _names(family.base, parameters)


def branch_names(
    family: NativeFamily, parameters: Iterable[str], *, index: int | None = None
) -> dict[str, str]:
    """Name of a branch's parameter -> its name in NVIDIA's file, without a prefix.

    Args:
        family: Which family's names.
        parameters: The branch's.
        index: The branch's place in a file of several; None in a file of one.
    """
    names = _names(family.branch, parameters)
    if index is None:
        return names
    return {
        ours: re.sub(r"^control_blocks\.", f"control_blocks_{index}.", name).replace(
            "control_embedder.", f"control_embedder.{index}."
        )
        for ours, name in names.items()
    }


def _names(rules: Rules, parameters: Iterable[str]) -> dict[str, str]:
    names = {}
    for parameter in parameters:
        name = parameter
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        names[parameter] = name
    if len(set(names.values())) != len(names):
        raise CheckpointError(
            explain(
                "native names",
                expected="one name for every parameter",
                got="two parameters of one name",
                do="Correct the rules in model/native_keys.py.",
            )
        )
    return names


def is_ignored(name: str, pattern: str) -> bool:
    """Whether a key of a file is none of a network's weights, by ``pattern``."""
    return re.search(pattern, name) is not None


def find_prefix(keys: Iterable[str], prefixes: tuple[str, ...], names: Mapping[str, str]) -> str:
    """The first prefix under which a file holds one of ``names``'s native names.

    Raises:
        CheckpointError: None of them.
    """
    present = set(keys)
    for prefix in prefixes:
        if any(prefix + name in present for name in names.values()):
            return prefix
    example = next(iter(names.values()), "a weight")
    some = ", ".join(sorted(present)[:3]) or "no key"
    raise CheckpointError(
        explain(
            "native checkpoint",
            expected=f"keys such as {prefixes[0]}{example}",
            got=some,
            do="Give the checkpoint as NVIDIA publishes it.",
        )
    )
