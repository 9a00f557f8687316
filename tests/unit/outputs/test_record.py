from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from cosmos_transfer.errors import MediaError, NumericsError
from cosmos_transfer.inputs.request import request_from_mapping, request_to_mapping
from cosmos_transfer.outputs.record import (
    GenerationRecord,
    WeightTotals,
    library_versions,
    read_record,
    weight_totals,
    write_record,
)
from cosmos_transfer.shapes import Size

PROMPT = 'снег / "a:b"\n' + "x" * 300


def a_record(**changes) -> GenerationRecord:
    request = request_from_mapping({"prompt": PROMPT, "video": "a.mp4", "edge": 0.5})
    totals = WeightTotals()  # of two chunks of different length
    totals.add(weight_totals(np.array([[0.25, 0.75, 0.5]], np.float32)))
    totals.add(weight_totals(np.array([[0.5]], np.float32)))
    record = GenerationRecord(
        request=request_to_mapping(request),
        checkpoint={"id": "embedded", "sha256": {"transformer": "00"}},
        inputs=({"where": "video", "path": "a.mp4", "num_frames": 2, "size": [48, 64]},),
        input_size=Size(48, 64),
        working_size=Size(64, 85),
        padded_size=Size(64, 96),
        num_frames=2,
        padded_frames=9,
        rate=Fraction(30000, 1001),
        times=(Fraction(0), Fraction(1001, 30000)),
        chunks=({"index": 0, "start": 0, "stop": 2},),
        weights=totals.summaries(["edge"]),
        seeds={"seed": 7, "episode": 0, "variant": 1},
        timings_s={"sampling": 1.5},
        metrics={"edge_f1": 0.5},
        notes=("a note",),
    )
    return replace(record, **changes)


def test_a_record_comes_back_as_it_was(tmp_path):
    record = a_record()
    again = read_record(write_record(tmp_path / "a.json", record))
    assert again == record
    assert again.request["prompt"] == PROMPT
    assert again.weights["edge"] == {"mean": 0.5, "min": 0.25, "max": 0.75}


def test_a_record_says_what_it_was_made_with():
    versions = library_versions()
    assert {"python", "numpy", "torch", "av"} <= set(versions)
    assert a_record().created.endswith("+00:00")


def test_a_record_is_plain_json(tmp_path):
    content = json.loads(write_record(tmp_path / "a.json", a_record()).read_text("utf-8"))
    assert content["format"] == "cosmos-transfer record"
    assert content["rate"] == "30000/1001"
    assert content["input_size"] == [48, 64]


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_record_never_holds_nan(tmp_path, value):
    with pytest.raises(NumericsError, match="record, metrics, edge_f1: expected a finite number"):
        write_record(tmp_path / "a.json", a_record(metrics={"edge_f1": value}))
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_not_overwritten_unless_asked(tmp_path):
    write_record(tmp_path / "a.json", a_record())
    with pytest.raises(MediaError, match="there already"):
        write_record(tmp_path / "a.json", a_record())
    write_record(tmp_path / "a.json", a_record(device="cuda"), overwrite=True)
    assert read_record(tmp_path / "a.json").device == "cuda"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "another kind of JSON"),
        ({"version": 99}, "version 99"),
        ({"extra": 1}, "extra unknown"),
        ({"rate": "fast"}, "another kind"),
        ({"input_size": [1]}, "another kind"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_is_no_record_is_refused(tmp_path, change, message):
    content = json.loads(write_record(tmp_path / "a.json", a_record()).read_text("utf-8"))
    (tmp_path / "b.json").write_text(json.dumps(content | change))
    with pytest.raises(MediaError, match=message):
        read_record(tmp_path / "b.json")


def test_a_record_with_a_part_missing_is_refused(tmp_path):
    content = json.loads(write_record(tmp_path / "a.json", a_record()).read_text("utf-8"))
    del content["weights"]
    (tmp_path / "b.json").write_text(json.dumps(content))
    with pytest.raises(MediaError, match="weights missing"):
        read_record(tmp_path / "b.json")


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(MediaError, match="a record of version 1"):
        read_record(tmp_path / "a.json")


def test_a_missing_record_is_refused(tmp_path):
    with pytest.raises(MediaError, match="no such file"):
        read_record(tmp_path / "a.json")
