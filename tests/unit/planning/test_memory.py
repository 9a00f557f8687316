from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

from cosmos_transfer.autoencoder.wan import WanAutoencoder
from cosmos_transfer.cli.plan import main as plan_command
from cosmos_transfer.errors import ConfigError
from cosmos_transfer.offload.options import MemoryOptions
from cosmos_transfer.planning import memory
from cosmos_transfer.planning.live_bytes import counted, parameter_bytes
from cosmos_transfer.planning.memory import Networks, Workload
from cosmos_transfer.planning.networks import networks_of
from cosmos_transfer.planning.workload import workload_of
from cosmos_transfer.shapes import Size
from tests.support import tiny

MB = 1_000_000


# ----------------------------------------------------------------------------- what is counted


def test_the_worst_moment_is_counted_and_not_the_sum():
    with torch.device("meta"), counted() as live:
        x = torch.empty(MB)  # 4 MB
        y = x + 1  # 8 MB
        del x
        z = y * 2  # 8 MB again
        del y
        assert z.numel() == MB
    assert live.peak == 8 * MB


def test_views_and_work_in_place_cost_nothing():
    with torch.device("meta"), counted() as live:
        x = torch.empty(1000, 1000)
        x.view(-1).mul_(2).reshape(10, -1)[3:].add_(1)
    assert live.peak == 4 * MB


def test_what_was_there_before_is_not_counted():
    with torch.device("meta"):
        x = torch.empty(MB)
        with counted() as live:
            x.add_(1)
    assert live.peak == 0


def test_attention_costs_its_output_and_not_its_scores():
    with torch.device("meta"):
        q = torch.empty(1, 4, 1000, 16)
        with counted() as live:
            nn.functional.scaled_dot_product_attention(q, q, q)
    assert live.peak == q.numel() * 4


def test_shared_parameters_count_once():
    layer = nn.Linear(100, 100, bias=False)
    assert parameter_bytes(layer, nn.Sequential(layer), None) == 4 * 100 * 100


# ---------------------------------------------------------------------------------- the stages


def networks(controls=("edge",)):
    model = tiny.transfer2_5_model(controls).to("meta")
    autoencoder = WanAutoencoder(tiny.wan_autoencoder()).to("meta")
    return Networks(
        family="2.5",
        model=model,
        autoencoder=autoencoder,
        text_width=tiny.TEXT_CHANNELS_2_5,
        text_tokens=7,
    )


SMALL = Size(64, 96)


def workload(num_controls=1, size=SMALL, frames=9):
    return Workload(size=size, num_frames=frames, chunk_frames=9, num_controls=num_controls)


@cache
def count(controls=("edge",), **work):
    return memory.count(networks(controls), workload(len(controls), **work), dtype=torch.float32)


def test_more_of_anything_needs_no_less():
    small = count()
    four = count(("edge", "depth", "seg", "vis"))
    large = count(size=Size(128, 192))
    assert four.branch_bytes == 4 * small.branch_bytes
    assert four.denoise_live > small.denoise_live
    for key in ("denoise_live", "encode_live", "decode_live", "frame_bytes"):
        assert getattr(large, key) > 3 * getattr(small, key), key
    assert large.base_bytes == small.base_bytes


def test_options_take_from_what_they_are_about():
    found = count()
    plain, fp8, stream, tile = (
        memory.plan(found, options, on_gpu=True, with_text_encoder=False)
        for options in (
            MemoryOptions(),
            MemoryOptions(fp8=True),
            MemoryOptions(offload="stream"),
            MemoryOptions(tile=True),
        )
    )
    weights = [each.stages[3].weights for each in (plain, fp8, stream)]
    assert weights[0] - weights[1] == found.block_bytes - found.block_bytes // 4
    assert weights[0] - weights[2] == found.block_bytes - 6 * found.largest_block_bytes
    assert [stage.live for stage in fp8.stages] == [stage.live for stage in plain.stages]
    assert tile.stages[2].live != plain.stages[2].live
    with_text = memory.plan(found, MemoryOptions(), on_gpu=True)
    assert with_text.peak - plain.peak == found.text_encoder_bytes


def test_the_peak_is_the_worst_stages():
    plan = memory.plan(count(), MemoryOptions(), on_gpu=False, process_bytes=7)
    assert plan.peak == max(s.weights + s.live + s.frames + s.process for s in plan.stages)
    names = [stage.name for stage in plan.stages]
    assert names == ["load", "text", "encode", "denoise", "decode"]


def test_the_table_says_where_it_fits():
    found = count()
    plans = [("one", memory.plan(found, MemoryOptions(), on_gpu=True, process_bytes=int(13e9)))]
    assert memory.table(plans, cards=(12, 80)).splitlines()[1].endswith("from 80 GB")
    assert memory.table(plans, cards=(12,)).splitlines()[1].endswith("none")


# -------------------------------------------------------------------------------- the published


def test_weights_of_the_published_model_are_its_parameters_in_two_bytes():
    found = networks_of("2b", ("edge",), torch.bfloat16)
    assert parameter_bytes(found.model.transformer) == 2 * 2_413_864_960
    # A branch's copies of the base are shared.
    assert parameter_bytes(found.model) - parameter_bytes(found.model.transformer) < 2 * 360 * MB


def test_workloads_are_padded_and_cut_into_chunks():
    work = workload_of("2b", size=(700, 1270), num_frames=200, num_controls=1)
    assert (work.size, work.chunk_frames) == (Size(704, 1280), 93)
    assert workload_of("2b", size=None, num_frames=6, num_controls=1).chunk_frames == 9
    assert workload_of("7b", size=None, num_frames=None, num_controls=1).chunk_frames == 121
    with pytest.raises(ConfigError, match="at least one pixel"):
        workload_of("2b", size=(0, 10), num_frames=None, num_controls=1)


def test_the_command_prints_every_stage(tiny_checkpoint, capsys):
    argv = ["memory", "--checkpoint", str(tiny_checkpoint), "--device", "cpu"]
    assert plan_command([*argv, "--dtype", "float32", "--size", "64x96"]) == 0
    said = capsys.readouterr().out
    assert "load      text    encode   denoise    decode      peak" in said
    assert "from 12 GB" in said
    with pytest.raises(ConfigError, match="height x width"):
        plan_command(["memory", "--size", "720p"])
