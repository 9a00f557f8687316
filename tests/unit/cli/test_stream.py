from __future__ import annotations

import json
import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosmos_transfer.cli.stream import (
    follow_folder,
    main,
    paced,
    raw_frames,
    raw_writer,
    y4m_frames,
    y4m_writer,
)
from cosmos_transfer.errors import ConfigError, MediaError
from tests.support.tiny_pipeline import save_tiny


def frames(count: int, height: int = 16, width: int = 24) -> np.ndarray:
    ramp = np.linspace(20, 230, count * height * width * 3).reshape(count, height, width, 3)
    return ramp.astype(np.uint8)


def test_raw_frames_come_back(tmp_path: Path):
    with (tmp_path / "raw").open("w+b") as file:
        write = raw_writer(file)
        for frame in frames(3):
            write(frame)
        file.seek(0)
        assert np.array_equal(np.stack(list(raw_frames(file, 16, 24))), frames(3))
        file.seek(7)
        with pytest.raises(MediaError, match="--size"):
            list(raw_frames(file, 16, 24))


def test_y4m_comes_back_within_the_rounding_of_its_colours(tmp_path: Path):
    with (tmp_path / "y4m").open("w+b") as file:
        write = y4m_writer(file, Fraction(30000, 1001))
        for frame in frames(3, 15, 23):
            write(frame)
        file.seek(0)
        assert file.readline() == b"YUV4MPEG2 W23 H15 F30000:1001 Ip C444\n"
        file.seek(0)
        again = np.stack(list(y4m_frames(file)))
    assert again.shape == (3, 15, 23, 3)
    assert np.abs(again.astype(int) - frames(3, 15, 23)).max() <= 3


def test_what_is_no_y4m_is_refused(tmp_path: Path):
    (tmp_path / "y4m").write_bytes(b"not a stream")
    with (tmp_path / "y4m").open("rb") as file, pytest.raises(MediaError, match="YUV4MPEG2"):
        list(y4m_frames(file))


def test_pictures_are_taken_as_they_are_written(tmp_path: Path):
    def writer() -> None:
        for index, frame in enumerate(frames(4)):
            Image.fromarray(frame).save(tmp_path / f"{index:04d}.png")
            time.sleep(0.05)

    thread = threading.Thread(target=writer)
    thread.start()
    seen = []
    for frame in follow_folder(tmp_path, idle_s=30.0):
        seen.append(frame)
        if len(seen) == 4:
            break
    thread.join()
    assert np.array_equal(np.stack(seen), frames(4))


def test_a_picture_that_is_still_being_written_is_waited_for(tmp_path: Path):
    whole = tmp_path / "0000.png"
    Image.fromarray(frames(1)[0]).save(whole)
    (tmp_path / "0001.png").write_bytes(whole.read_bytes()[:90])
    assert len(list(follow_folder(tmp_path, idle_s=0.3))) == 1
    Image.fromarray(frames(1)[0]).save(tmp_path / "0002.png")
    with pytest.raises(MediaError, match="0001"):
        list(follow_folder(tmp_path, idle_s=0.3))


def test_frames_are_paced():
    started = time.monotonic()
    assert list(paced(iter("abcd"), Fraction(50))) == list("abcd")
    assert time.monotonic() - started >= 3 / 50


def test_the_command_restyles_a_file_of_raw_frames(tmp_path: Path, capsys):
    checkpoint = save_tiny(tmp_path / "tiny")
    (tmp_path / "in.rgb").write_bytes(frames(9).tobytes())
    given = ["--prompt", "snow", "--checkpoint", str(checkpoint), "--size", "24x16"]
    given += ["--input", str(tmp_path / "in.rgb"), "--output", str(tmp_path / "out.rgb")]
    given += ["--steps", "1", "--drop", "wait", "--report", str(tmp_path / "report.json")]
    assert main(given) == 0
    assert (tmp_path / "out.rgb").stat().st_size == 9 * 16 * 24 * 3
    assert "9 of 9 frames" in capsys.readouterr().err
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["num_out"], report["num_dropped"], report["drop"]) == (9, 0, "wait")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "--size 640x360"),
        (["--size", "0x16"], "--size 640x360"),
        (["--format", "folder"], "a path for the format folder"),
        (["--size", "24x16", "--rate", "fast"], "frames a second"),
        (["--size", "24x16", "--control", "depth=1"], "edge or vis"),
        (["--size", "24x16", "--control", "edge=much"], "edge or vis"),
    ],
)
def test_mistakes_are_refused_before_a_model_is_loaded(arguments: list[str], word: str):
    with pytest.raises(ConfigError, match=word):
        main(["--prompt", "snow", "--checkpoint", "nowhere", *arguments])
