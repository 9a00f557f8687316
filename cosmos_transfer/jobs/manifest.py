"""A job as a table: one row per item in an SQLite file beside the outputs.

Several processes of one machine work one manifest. A claim is one transaction, so that no two get
the same item; a claim of a process that is gone is free again. SQLite's write-ahead log does not
work on network folders: keep the manifest on a local disk.

=========  ====================================================================
state      meaning
=========  ====================================================================
waiting    not begun, or given back
running    claimed by a process
done       its files stand under their final names
refused    made, but under the thresholds in every attempt
failed     an error; the row says which
=========  ====================================================================
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosmos_transfer.errors import MediaError, explain

STATES = ("waiting", "running", "done", "refused", "failed")
MANIFEST_NAME = "job.sqlite"
BUSY_S = 30.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    payload TEXT NOT NULL,
    hash TEXT NOT NULL,
    seed INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    attempts INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    begun REAL,
    ended REAL,
    metrics TEXT NOT NULL DEFAULT '{}',
    outputs TEXT NOT NULL DEFAULT '[]',
    error TEXT
);
CREATE INDEX IF NOT EXISTS by_state ON items (state, id);
CREATE INDEX IF NOT EXISTS by_end ON items (ended, state, begun);
"""
_COLUMNS = "id, name, payload, hash, seed, state, attempts, begun, ended, metrics, outputs, error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to make: a name that is a file name, and plain values that say what."""

    name: str
    payload: Mapping[str, Any]
    seed: int = 0
    hash: str = ""  # unset: of the payload

    def __post_init__(self) -> None:
        """Hash the payload where no hash of its inputs was given."""
        if not self.hash:
            object.__setattr__(self, "hash", content_hash(self.payload))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table. Times are seconds since 1970."""

    id: int
    name: str
    payload: Mapping[str, Any]
    hash: str
    seed: int
    state: str
    attempts: int
    begun: float | None
    ended: float | None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is."""

    counts: Mapping[str, int]
    items_per_hour: float | None  # over what was done so far; None before the second item
    remaining_s: float | None


def joined(parts: Sequence[Progress]) -> Progress:
    """How far several jobs are together; their rates add up, and the slowest says when it ends."""
    counts = {state: sum(part.counts[state] for part in parts) for state in STATES}
    rates = [part.items_per_hour for part in parts if part.items_per_hour is not None]
    ends = [part.remaining_s for part in parts if part.remaining_s is not None]
    return Progress(
        counts=counts,
        items_per_hour=sum(rates) if rates else None,
        remaining_s=max(ends) if ends else None,
    )


def content_hash(values: Mapping[str, Any]) -> str:
    """SHA-256 of plain values, whatever the order of their keys."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Manifest:
    """The table of one job.

    Args:
        path: The SQLite file.
        create: Make it where it is absent; otherwise absence is an error.
        busy_s: Seconds to wait for another process that writes.

    Raises:
        MediaError: The file is missing, is no manifest, is locked, or its disk is full.
    """

    def __init__(self, path: str | Path, *, create: bool = False, busy_s: float = BUSY_S) -> None:
        self.path = Path(path)
        self.busy_s = busy_s
        if not create and not self.path.is_file():
            raise MediaError(
                explain(
                    str(self.path),
                    expected="the manifest of a job",
                    got="no such file",
                    do="Name the folder that cosmos-transfer batch wrote into.",
                )
            )
        if create:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise self._unusable(error) from error
            with self._transaction() as connection:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)

    def add(self, items: Iterable[Item]) -> None:
        """Add items; one of the same name and hash stays as it is, a changed one waits again."""
        rows = [
            (each.name, json.dumps(each.payload, ensure_ascii=False), each.hash, each.seed)
            for each in items
        ]
        with self._transaction() as connection:
            connection.executemany(
                "INSERT INTO items (name, payload, hash, seed) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET payload = excluded.payload, "
                "hash = excluded.hash, seed = excluded.seed, state = 'waiting', attempts = 0, "
                "owner = NULL, begun = NULL, ended = NULL, metrics = '{}', outputs = '[]', "
                "error = NULL WHERE items.hash != excluded.hash",
                rows,
            )

    def claim(self) -> Row | None:
        """Take the next waiting item for this process; None where nothing waits."""
        with self._transaction() as connection:
            found = connection.execute(
                "UPDATE items SET state = 'running', owner = ?, begun = ?, ended = NULL, "
                "attempts = attempts + 1, error = NULL WHERE id = "
                "(SELECT id FROM items WHERE state = 'waiting' ORDER BY id LIMIT 1) "
                f"RETURNING {_COLUMNS}",
                (_this_process(), time.time()),
            ).fetchall()
        return _row(found[0]) if found else None

    def finish(
        self,
        row: Row,
        state: str,
        *,
        metrics: Mapping[str, Any] | None = None,
        outputs: Iterable[str] = (),
        error: str | None = None,
    ) -> None:
        """Say how an item that this process claimed came out."""
        if state not in STATES:
            raise ValueError(f"no state {state!r}")
        with self._transaction() as connection:
            connection.execute(
                "UPDATE items SET state = ?, ended = ?, metrics = ?, outputs = ?, error = ?, "
                "owner = NULL WHERE id = ? AND owner = ?",
                (
                    state,
                    time.time(),
                    json.dumps(dict(metrics or {})),
                    json.dumps(list(outputs)),
                    error,
                    row.id,
                    _this_process(),
                ),
            )

    def give_back(self, row: Row) -> None:
        """Let an item wait again that this process claimed."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE items SET state = 'waiting', owner = NULL WHERE id = ? AND owner = ?",
                (row.id, _this_process()),
            )

    def release_abandoned(self) -> tuple[Row, ...]:
        """Let items wait again whose process is gone; returns them."""
        released: list[tuple[Any, ...]] = []
        with self._transaction() as connection:
            owners = connection.execute(
                "SELECT DISTINCT owner FROM items WHERE state = 'running'"
            ).fetchall()
            for (owner,) in owners:
                if not _is_alive(owner):
                    released += connection.execute(
                        "UPDATE items SET state = 'waiting', owner = NULL "
                        f"WHERE state = 'running' AND owner IS ? RETURNING {_COLUMNS}",
                        (owner,),
                    ).fetchall()
        return tuple(_row(each) for each in released)

    def give_up(self, row: Row, error: str) -> None:
        """Let an item that waits have failed."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE items SET state = 'failed', ended = ?, error = ? "
                "WHERE id = ? AND state = 'waiting'",
                (time.time(), error, row.id),
            )

    def retry(self, states: Iterable[str] = ("failed", "refused")) -> int:
        """Let items in these states wait again; returns how many."""
        with self._transaction() as connection:
            before = connection.total_changes
            connection.executemany(
                "UPDATE items SET state = 'waiting', error = NULL WHERE state = ?",
                [(state,) for state in states if state not in ("running", "waiting")],
            )
            return connection.total_changes - before

    def rows(self, *states: str) -> tuple[Row, ...]:
        """The rows, in the order they were added; all, or those in the states named."""
        where = f" WHERE state IN ({', '.join('?' * len(states))})" if states else ""
        with self._connection() as connection:
            found = connection.execute(
                f"SELECT {_COLUMNS} FROM items{where} ORDER BY id", states
            ).fetchall()
        return tuple(_row(each) for each in found)

    def last_ended(self) -> float:
        """When the last item came out so far; 0 before the first."""
        with self._connection() as connection:
            return float(connection.execute("SELECT MAX(ended) FROM items").fetchone()[0] or 0.0)

    def ended_since(self, moment: float) -> tuple[Row, ...]:
        """The rows that came out at that moment or later."""
        with self._connection() as connection:
            found = connection.execute(
                f"SELECT {_COLUMNS} FROM items WHERE ended >= ? ORDER BY ended", (moment,)
            ).fetchall()
        return tuple(_row(each) for each in found)

    def progress(self) -> Progress:
        """Counts by state, the rate so far, and the time that the rest takes at that rate."""
        with self._connection() as connection:
            counted = dict(
                connection.execute("SELECT state, COUNT(*) FROM items GROUP BY state").fetchall()
            )
            first, last, made = connection.execute(
                "SELECT MIN(begun), MAX(ended), COUNT(*) FROM items "
                "WHERE state IN ('done', 'refused')"
            ).fetchone()
        counts = {state: counted.get(state, 0) for state in STATES}
        rate = made / (last - first) if made > 1 and last > first else None
        left = counts["waiting"] + counts["running"]
        return Progress(
            counts=counts,
            items_per_hour=None if rate is None else 3600 * rate,
            remaining_s=None if rate is None else left / rate,
        )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            # One connection per use: none is shared between threads or inherited by a fork.
            with closing(
                sqlite3.connect(self.path, timeout=self.busy_s, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                yield connection
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _unusable(self, error: Exception) -> MediaError:
        text = str(error)
        if "locked" in text or "busy" in text:
            do = "Another program holds it: end that one, then start this command again."
        elif "full" in text or "No space" in text or "disk I/O" in text:
            do = "Make room on the disk, then start this command again: nothing done is lost."
        else:
            do = "Check the path; delete the file to begin the job anew."
        return MediaError(
            explain(str(self.path), expected="a manifest that can be used", got=text, do=do)
        )


def _row(values: tuple[Any, ...]) -> Row:
    names = [name.strip() for name in _COLUMNS.split(",")]
    found = dict(zip(names, values, strict=True))
    for key in ("payload", "metrics", "outputs"):
        found[key] = json.loads(found[key])
    return Row(**{**found, "outputs": tuple(found["outputs"])})


def _this_process() -> str:
    return f"{os.getpid()}:{_start_of(os.getpid())}"


def _is_alive(owner: str | None) -> bool:
    if owner is None:
        return False
    pid, _, start = owner.partition(":")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _start_of(int(pid)) == start  # another process may have got the number meanwhile


def _start_of(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty where there is no /proc, or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    after_name = text.rpartition(")")[2].split()
    return "zombie" if after_name[0] in "ZX" else after_name[19]
