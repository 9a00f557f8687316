"""NVIDIA's own files: names, counts, strictness and the way back, on the published sizes."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors.torch import load_file

from cosmos_transfer.errors import CheckpointError
from cosmos_transfer.model import native_keys
from cosmos_transfer.model.architectures import (
    ARCHITECTURES,
    TRANSFER1_7B,
    TRANSFER2_5_2B,
    build_base,
    build_branch,
)
from cosmos_transfer.model.branches import SHARED_PARTS, check_branch, controlled_blocks
from cosmos_transfer.model.checkpoint_parts import load_strictly
from cosmos_transfer.model.native import (
    base_weights,
    branch_weights,
    check_leftovers,
    read_native,
    to_native,
)
from cosmos_transfer.model.native_keys import TRANSFER1, TRANSFER2_5
from tests.support import tiny

SHARED = tuple(SHARED_PARTS.values())


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=lambda each: each.name)
def published(request):
    """A published family at full size, without memory."""
    with torch.device("meta"):
        return request.param, build_base(request.param), build_branch(request.param)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameter_counts_are_the_published_ones(published):
    architecture, base, branch = published
    assert count(base) == architecture.base_parameters
    assert count(branch) == architecture.branch_parameters


def test_2_5_counts_round_to_the_published_figures():
    assert round(TRANSFER2_5_2B.base_parameters / 1e9, 3) == 2.414
    assert round(TRANSFER2_5_2B.branch_parameters / 1e9, 3) == 0.471
    assert round(TRANSFER1_7B.base_parameters / 1e9) == 7


def test_branches_act_where_the_family_has_them(published):
    architecture, base, branch = published
    check_branch("edge", base, branch)
    expected = (0, 7, 14, 21) if architecture is TRANSFER2_5_2B else (0, 1, 2)
    assert controlled_blocks(base) == expected


# ------------------------------------------------- names, written out by hand from the reference


def numbered(template, numbers):
    return [template.replace("#", str(number)) for number in numbers]


def names_2_5(blocks, where="blocks"):
    inner = [
        f"{kind}.{part}.weight"
        for kind in ("self_attn", "cross_attn")
        for part in ("q_proj", "k_proj", "v_proj", "output_proj", "q_norm", "k_norm")
    ]
    inner += [f"cross_attn.{p}.weight" for p in ("q_img", "k_img", "v_img")]
    inner += ["cross_attn.q_img_norm.weight", "cross_attn.k_img_norm.weight"]
    inner += ["mlp.layer1.weight", "mlp.layer2.weight"]
    inner += [
        f"adaln_modulation_{kind}.{i}.weight"
        for kind in ("self_attn", "cross_attn", "mlp")
        for i in (1, 2)
    ]
    return {f"net.{where}.{b}.{name}" for b in range(blocks) for name in inner}


def file_names_2_5(indices=(None,)):
    names = names_2_5(28) | {
        "net.x_embedder.proj.1.weight",
        "net.t_embedder.1.linear_1.weight",
        "net.t_embedder.1.linear_2.weight",
        "net.t_embedding_norm.weight",
        "net.final_layer.linear.weight",
        "net.final_layer.adaln_modulation.1.weight",
        "net.final_layer.adaln_modulation.2.weight",
        "net.crossattn_proj.0.weight",
        "net.crossattn_proj.0.bias",
        "net.img_context_proj.0.weight",
        "net.img_context_proj.0.bias",
    }
    for nc in indices:
        where = "control_blocks" if nc is None else f"control_blocks_{nc}"
        names |= names_2_5(4, where)
        names |= {f"net.{where}.{b}.after_proj.{p}" for b in range(4) for p in ("weight", "bias")}
        names |= {f"net.{where}.0.before_proj.{p}" for p in ("weight", "bias")}
        embedder = "control_embedder" if nc is None else f"control_embedder.{nc}"
        names |= {f"net.{embedder}.proj.1.weight"}
    return names


def names_1(blocks):
    inner = [
        f"blocks.{kind}.block.attn.{part}.weight"
        for kind in (0, 1)
        for part in ("to_q.0", "to_q.1", "to_k.0", "to_k.1", "to_v.0", "to_out.0")
    ]
    inner += ["blocks.2.block.layer1.weight", "blocks.2.block.layer2.weight"]
    inner += [f"blocks.{kind}.adaLN_modulation.{i}.weight" for kind in (0, 1, 2) for i in (1, 2)]
    return {f"net.blocks.block{b}.{name}" for b in range(blocks) for name in inner} | {
        "net.x_embedder.proj.1.weight",
        "net.extra_pos_embedder.pos_emb_h",
        "net.extra_pos_embedder.pos_emb_w",
        "net.extra_pos_embedder.pos_emb_t",
        "net.t_embedder.1.linear_1.weight",
        "net.t_embedder.1.linear_2.weight",
        "net.affline_norm.weight",
    }


def file_names_1_base():
    return names_1(28) | {
        "net.final_layer.linear.weight",
        "net.final_layer.adaLN_modulation.1.weight",
        "net.final_layer.adaLN_modulation.2.weight",
    }


def file_names_1_branch():
    names = names_1(3) | {"net.x_embedder2.proj.1.weight"}
    for i in range(0, 15, 2):
        names |= {f"net.input_hint_block.{i}.{p}" for p in ("weight", "bias")}
    return names | {f"net.zero_blocks.block{b}.{p}" for b in range(3) for p in ("weight", "bias")}


BY_PRODUCTS_2_5 = (
    "net.pos_embedder.seq",
    "net.pos_embedder.dim_spatial_range",
    "net.accum_video_sample_counter",
    "net.accum_iteration",
    "net.blocks.3.self_attn._extra_state",
)
BY_PRODUCTS_1 = ("net.pos_embedder.seq", "logvar.0.freqs", "logvar.0.phases", "logvar.1.weight")


def synthetic(names, networks, family, by_products):
    """A file on meta: every name NVIDIA's file has, in its parameter's shape."""
    shapes = {}
    for network, name_of in networks:
        for ours, theirs in name_of(family, network.state_dict()).items():
            shapes[f"net.{theirs}"] = network.state_dict()[ours].shape
    return {
        **{name: torch.empty(shapes.get(name, (1,)), device="meta") for name in sorted(names)},
        **{name: torch.empty(1, device="meta") for name in by_products},
    }


def fill(network, weights):
    """Load on meta, strictly: names and shapes are checked, nothing is stored."""
    load_strictly(network, weights, where="test")


def test_a_file_of_2_5_loads_strictly_and_goes_back():
    with torch.device("meta"):
        base, branch = build_base(TRANSFER2_5_2B), build_branch(TRANSFER2_5_2B)
    names = file_names_2_5()
    state = synthetic(
        names,
        [(base, native_keys.base_names), (branch, native_keys.branch_names)],
        TRANSFER2_5,
        BY_PRODUCTS_2_5,
    )
    check_leftovers(state, TRANSFER2_5, base=base, branches=[branch], where="file")
    fill(base, base_weights(state, base, TRANSFER2_5, where="file"))
    own = branch_weights(state, branch, TRANSFER2_5, where="file", absent_parts=SHARED)
    load_strictly(branch, own, where="test", absent_parts=SHARED)
    # The way back, to the last name.
    back = to_native(TRANSFER2_5, base=base.state_dict(), branches=[branch.state_dict()])
    assert back.keys() == names
    assert all(back[name].shape == state[name].shape for name in names)


def test_a_file_of_four_branches_loads_by_number():
    with torch.device("meta"):
        base = build_base(TRANSFER2_5_2B)
        branches = [build_branch(TRANSFER2_5_2B) for _ in range(4)]
    names = file_names_2_5((0, 1, 2, 3))
    back = to_native(
        TRANSFER2_5, base=base.state_dict(), branches=[b.state_dict() for b in branches]
    )
    assert back.keys() == names
    check_leftovers(back, TRANSFER2_5, base=base, branches=branches, where="file")
    for index, branch in enumerate(branches):
        own = branch_weights(
            back, branch, TRANSFER2_5, where="file", index=index, absent_parts=SHARED
        )
        load_strictly(branch, own, where="test", absent_parts=SHARED)


def test_files_of_1_load_strictly_and_go_back():
    with torch.device("meta"):
        base, branch = build_base(TRANSFER1_7B), build_branch(TRANSFER1_7B)
    state = synthetic(
        file_names_1_base(), [(base, native_keys.base_names)], TRANSFER1, BY_PRODUCTS_1
    )
    check_leftovers(state, TRANSFER1, base=base, branches=[], where="base")
    fill(base, base_weights(state, base, TRANSFER1, where="base"))
    assert to_native(TRANSFER1, base=base.state_dict()).keys() == file_names_1_base()

    # A control's file: the branch, a head it never uses, and the base nested once more.
    by_products = (*BY_PRODUCTS_1, "net.final_layer.linear.weight", "base_model.net.logvar.0.freqs")
    nested = {f"base_model.{name}" for name in file_names_1_base()}
    state = synthetic(
        file_names_1_branch(), [(branch, native_keys.branch_names)], TRANSFER1, by_products
    ) | {name: torch.empty(1, device="meta") for name in nested}
    check_leftovers(state, TRANSFER1, base=None, branches=[branch], where="edge")
    fill(branch, branch_weights(state, branch, TRANSFER1, where="edge"))
    assert to_native(TRANSFER1, branches=[branch.state_dict()]).keys() == file_names_1_branch()


def test_the_nested_and_the_distilled_prefixes_are_found():
    base, branch = tiny.transfer1_transformer(), tiny.transfer1_branch(seed=3)
    plain = to_native(TRANSFER1, base=base.state_dict())
    for prefix in ("base_model.", "net.base_model."):
        nested = {prefix + name: value for name, value in plain.items()}
        got = base_weights(nested, base, TRANSFER1, where="file")
        assert all(torch.equal(got[key], value) for key, value in base.state_dict().items())
    own = to_native(TRANSFER1, branches=[branch.state_dict()])
    distilled = {f"net.net_ctrl.{name.removeprefix('net.')}": v for name, v in own.items()}
    got = branch_weights(distilled, branch, TRANSFER1, where="file")
    assert all(torch.equal(got[key], value) for key, value in branch.state_dict().items())


# --------------------------------------------------------------------------------- strictness


@pytest.mark.parametrize("name", ["net.blocks.0.attn_new.weight", "net.control_blocks.9.x"])
def test_a_key_without_a_parameter_is_named(name):
    model = tiny.transfer2_5_model()
    base, branch = model.transformer, model.branches["edge"]
    state = to_native(TRANSFER2_5, base=base.state_dict(), branches=[branch.state_dict()])
    state[name] = torch.zeros(1)
    with pytest.raises(CheckpointError, match=re.escape(f"1 keys without a parameter: {name}")):
        check_leftovers(state, TRANSFER2_5, base=base, branches=[branch], where="file")


def test_every_missing_weight_is_named():
    base = tiny.transfer2_5_transformer()
    state = to_native(TRANSFER2_5, base=base.state_dict())
    gone = ["net.blocks.1.mlp.layer2.weight", "net.final_layer.linear.weight"]
    for name in gone:
        del state[name]
    with pytest.raises(CheckpointError) as raised:
        base_weights(state, base, TRANSFER2_5, where="file")
    assert all(name in str(raised.value) for name in gone)
    assert "2 missing" in str(raised.value)


def test_a_file_of_the_other_family_is_refused():
    state = to_native(TRANSFER1, base=tiny.transfer1_transformer().state_dict())
    base = tiny.transfer2_5_transformer()
    with pytest.raises(CheckpointError, match=r"missing|expected keys such as"):
        base_weights(state, base, TRANSFER2_5, where="file")


# -------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("wrapper", [None, "model", "module", "state_dict"])
def test_a_file_is_read_with_or_without_its_wrapper(tmp_path, wrapper):
    state = {"net.a": torch.arange(3.0), "net.b._extra_state": None}
    torch.save(state if wrapper is None else {wrapper: state, "iteration": 3}, tmp_path / "a.pt")
    read = read_native(tmp_path / "a.pt")
    assert read.keys() == {"net.a"}
    assert torch.equal(read["net.a"], state["net.a"])


class Surprise:
    def __reduce__(self):
        return (print, ("code ran",))


def test_a_file_that_holds_code_is_not_opened(tmp_path, capsys):
    torch.save({"net.a": Surprise()}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="tensors alone"):
        read_native(tmp_path / "a.pt")
    assert "code ran" not in capsys.readouterr().out


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(CheckpointError, match=r"checkpoint none\.pt: expected"):
        read_native(tmp_path / "none.pt")


# ----------------------------------------------------------------------- to diffusers' layout


@pytest.mark.parametrize("family", ["2.5", "1"])
def test_native_weights_survive_diffusers_layout(family, tmp_path):
    """Native file -> networks -> diffusers' folder -> networks -> native file, bit for bit."""
    if family == "2.5":
        base, branch, names = (
            tiny.transfer2_5_transformer(),
            tiny.transfer2_5_branch(seed=5),
            TRANSFER2_5,
        )
    else:
        base, branch, names = tiny.transfer1_transformer(), tiny.transfer1_branch(seed=5), TRANSFER1
    for part, network in (("base", base), ("branch", branch)):
        network.save_pretrained(tmp_path / part)
        again = type(network).from_pretrained(tmp_path / part)
        key = {"base": network.state_dict()} if part == "base" else {}
        before = (
            to_native(names, **key) if key else to_native(names, branches=[network.state_dict()])
        )
        after = (
            to_native(names, base=again.state_dict())
            if key
            else to_native(names, branches=[again.state_dict()])
        )
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
        on_disk = load_file(next((tmp_path / part).glob("*.safetensors")))
        assert on_disk.keys() == network.state_dict().keys()
