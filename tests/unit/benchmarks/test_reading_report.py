"""The section of the page about reading clips."""

from __future__ import annotations

from benchmarks import report


def test_every_run_of_reading_has_its_rows() -> None:
    told = {"times_faster": 1.25, "times_less_cpu": 1.5}
    run = {"date": "2026-01-02 03:04 UTC", "file": "a.json", "hardware": {"load_average": 0.5}}
    memory = {"peak_mb": {"300": 400.2, "3000": 404.9}, "ratio": 1.012}
    page = report.reading([run | {"speed": {"2 threads": told}}, run | {"memory": memory}])
    (row,) = (line for line in page.splitlines() if line.startswith("| 2 threads"))
    assert [cell.strip() for cell in row.split("|")[2:5]] == ["1.25", "1.50", "0.5"]
    assert "[2026-01-02 03:04 UTC](results/a.json)" in row
    assert "400 MB for 300 frames, 405 MB for 3000 frames; ratio 1.01" in page
