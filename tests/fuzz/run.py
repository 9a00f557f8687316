"""Feed damaged files to every reader:  python -m tests.fuzz.run --seconds 600

A case fails when a reader raises anything but this package's errors, an error of more than one
line, takes longer than five seconds of processor time or a minute of anybody's, kills the process,
or makes it grow above a gigabyte. Cases
are numbered and come from the number alone: ``--case N`` runs one again in this process.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing as mp
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from cosmos_transfer.errors import TransferError
from tests.fuzz.mutations import mutate
from tests.fuzz.seeds import Seed, make_seeds

SECONDS_PER_CASE = 5.0  # of processor time: a busy machine is no fault of a reader
PATIENCE_SECONDS = 60.0  # of wall-clock time: imports at the start, then a reader that waits
GIGABYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that failed, and how."""

    case: int
    seed: str
    what: str

    def __str__(self) -> str:
        return f"case {self.case} ({self.seed}): {self.what}"


def run_case(number: int, seeds: Sequence[Seed], folder: Path) -> Finding | None:
    """Damage one file and read it with each of its readers."""
    rng = np.random.default_rng([1, number])
    seed = seeds[int(rng.integers(len(seeds)))]
    path = folder / seed.name
    path.write_bytes(mutate(seed.content, rng, is_text=seed.is_text))
    before, started = _peak_bytes(), time.process_time()
    for reader in seed.readers:
        try:
            reader(path)
        except TransferError as error:
            if "\n" in str(error):
                return Finding(number, seed.name, f"an error of several lines: {error!r}")
        except BaseException as error:  # whatever it is, it is the finding
            return Finding(number, seed.name, f"{type(error).__name__}: {error}"[:300])
    if (seconds := time.process_time() - started) > SECONDS_PER_CASE:
        return Finding(number, seed.name, f"took {seconds:.1f} s of processor time")
    if _peak_bytes() > max(GIGABYTE, before):
        return Finding(number, seed.name, f"memory grew to {_peak_bytes() / GIGABYTE:.2f} GB")
    return None


def fuzz(*, seconds: float, max_cases: int | None = None, first: int = 0) -> list[Finding]:
    """Run cases in a process of their own until the time or the number is used up."""
    findings: list[Finding] = []
    case, deadline = first, time.monotonic() + seconds
    context = mp.get_context("spawn")
    while time.monotonic() < deadline and (max_cases is None or case < first + max_cases):
        ours, theirs = context.Pipe()
        last = None if max_cases is None else first + max_cases
        worker = context.Process(target=_work, args=(theirs, case, last), daemon=True)
        worker.start()
        theirs.close()
        while time.monotonic() < deadline and case != last:
            if not ours.poll(PATIENCE_SECONDS):
                findings.append(Finding(case, "?", f"no answer within {PATIENCE_SECONDS:g} s"))
                case += 1
                break
            try:
                done, finding = ours.recv()
            except EOFError:
                findings.append(Finding(case, "?", "the process died"))
                case += 1
                break
            if finding is not None:
                findings.append(finding)
            case = done + 1
        worker.kill()
        worker.join()
    logging.getLogger(__name__).info("%d cases, %d findings", case - first, len(findings))
    return findings


def _work(answers: Connection, first: int, last: int | None) -> None:
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        seeds = make_seeds(Path(folder))
        number = first
        while last is None or number < last:
            answers.send((number, run_case(number, seeds, Path(folder))))
            number += 1


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    """Run from the command line; exit code 1 if anything was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this one alone, in this process")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    if arguments.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            finding = run_case(arguments.case, make_seeds(Path(folder)), Path(folder))
        findings = [] if finding is None else [finding]
    else:
        findings = fuzz(seconds=arguments.seconds, first=arguments.first)
    sys.stdout.writelines(f"{each}\n" for each in findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
