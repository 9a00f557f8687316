"""A short run of the fuzzer; ``make fuzz`` runs it for ten minutes."""

from __future__ import annotations

from tests.fuzz.run import fuzz


def test_damaged_files_give_our_errors_and_nothing_else() -> None:
    findings = fuzz(seconds=60.0, max_cases=400)
    assert not findings, "\n".join(map(str, findings))
