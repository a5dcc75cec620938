"""The on-disk index of a data build: candidates by file, and the choice among them.

SQLite holds everything, so memory does not grow with the number of files, each file is added
whole or not at all, and a killed build goes on where it stopped.
"""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self

from sumone.data.cutting import Candidate, unit_hash

__all__ = ["CandidateStore", "FileEntry"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (digest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, hash TEXT NOT NULL, error TEXT NOT NULL, trajectories INTEGER NOT NULL,
    skipped_records INTEGER NOT NULL, counts TEXT NOT NULL, redactions TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS candidates (
    file TEXT NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL, domain TEXT NOT NULL,
    task TEXT NOT NULL, task_hash REAL NOT NULL, order_hash REAL NOT NULL,
    context_tokens INTEGER NOT NULL, has_memory INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (file, place)
) WITHOUT ROWID;
"""

_POOL = """
CREATE TEMP TABLE pool AS
SELECT file, place, domain, task, task_hash, order_hash, context_tokens, has_memory,
       ROW_NUMBER() OVER (
           PARTITION BY domain, has_memory, context_tokens ORDER BY order_hash, file, place
       ) AS turn
FROM (
    SELECT file, place, domain, task, task_hash, order_hash, context_tokens, has_memory,
           ROW_NUMBER() OVER (PARTITION BY id ORDER BY file, place) AS copy
    FROM candidates
) WHERE copy = 1
"""
"""One row for each content; `turn` deals the context sizes out in rotation."""


class FileEntry(NamedTuple):
    """What became of one file."""

    path: str
    hash: str
    """Hash of its contents."""
    error: str = ""
    """Why it was skipped; empty for a file that was read."""
    trajectories: int = 0
    skipped_records: int = 0
    counts: Mapping[str, int] = {}
    """Why trajectories gave no instance."""
    redactions: Mapping[str, int] = {}


class CandidateStore:
    """The index; a context manager."""

    def __init__(self, path: Path, *, digest: str, seed: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._seed = seed
        self._db = sqlite3.connect(path)
        self._db.executescript(_SCHEMA)
        stored = self._db.execute("SELECT digest FROM meta").fetchone()
        if stored != (digest,):
            # Other settings make other candidates: start again.
            with self._db:
                for table in ("meta", "files", "candidates"):
                    self._db.execute(f"DELETE FROM {table}")
                self._db.execute("INSERT INTO meta VALUES (?)", (digest,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def keep_only(self, paths: Iterable[str]) -> None:
        """Forget files that no longer belong to the build."""
        with self._db:
            self._db.execute("CREATE TEMP TABLE wanted (path TEXT PRIMARY KEY)")
            self._db.executemany("INSERT OR IGNORE INTO wanted VALUES (?)", ((p,) for p in paths))
            for table, column in (("files", "path"), ("candidates", "file")):
                self._db.execute(
                    f"DELETE FROM {table} WHERE {column} NOT IN (SELECT path FROM wanted)"
                )
            self._db.execute("DROP TABLE wanted")

    def finished(self, path: str, file_hash: str) -> bool:
        """Whether a file with these contents was done before."""
        row = self._db.execute("SELECT hash FROM files WHERE path = ?", (path,)).fetchone()
        return row is not None and str(row[0]) == file_hash

    def start(self, path: str) -> None:
        """Begin a file: what an earlier version of it gave is forgotten."""
        self._db.execute("DELETE FROM files WHERE path = ?", (path,))
        self._db.execute("DELETE FROM candidates WHERE file = ?", (path,))

    def add(self, path: str, place: int, candidate: Candidate) -> None:
        """Add a candidate of the file that was started."""
        instance = candidate.instance
        self._db.execute(
            "INSERT INTO candidates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                path,
                place,
                instance.id,
                instance.domain,
                instance.task,
                unit_hash(self._seed, "task", instance.task),
                unit_hash(self._seed, "order", instance.id),
                candidate.context_tokens,
                bool(instance.memory),
                instance.model_dump_json(),
            ),
        )

    def finish(self, entry: FileEntry) -> None:
        """End the file that was started; a file with an error leaves no candidates."""
        if entry.error:
            self._db.rollback()
            self.start(entry.path)
        self._db.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*entry[:5], json.dumps(dict(entry.counts)), json.dumps(dict(entry.redactions))),
        )
        self._db.commit()

    def entries(self) -> Iterator[FileEntry]:
        """What became of each file, in order of their paths."""
        with closing(self._db.execute("SELECT * FROM files ORDER BY path")) as rows:
            for row in rows:
                path, file_hash, error, trajectories, skipped, counts, redactions = row
                yield FileEntry(
                    path, file_hash, error, trajectories, skipped,
                    json.loads(counts), json.loads(redactions),
                )  # fmt: skip

    def choose(
        self, *, memory_share: float, heldout_share: float, max_per_domain: int | None
    ) -> None:
        """Choose among the distinct candidates: as many of each domain, the memory share of them
        with a memory as far as there are any, whole tasks held out."""
        self._db.executescript("DROP TABLE IF EXISTS pool; DROP TABLE IF EXISTS chosen;")
        self._db.execute(_POOL)
        self._db.execute("CREATE TEMP TABLE chosen AS SELECT *, 0 AS heldout FROM pool LIMIT 0")
        sizes = self._db.execute(
            "SELECT domain, SUM(has_memory), COUNT(*) - SUM(has_memory) FROM pool "
            "GROUP BY domain ORDER BY domain"
        ).fetchall()
        if not sizes:
            return
        cap = max_per_domain or min(
            sum(_quota(memory, plain, memory + plain, memory_share)) for _, memory, plain in sizes
        )
        for domain, memory, plain in sizes:
            with_memory, without = _quota(memory, plain, cap, memory_share)
            for has_memory, count in ((1, with_memory), (0, without)):
                self._db.execute(
                    "INSERT INTO chosen SELECT *, 0 FROM pool WHERE domain = ? AND has_memory = ? "
                    "ORDER BY turn, context_tokens, order_hash LIMIT ?",
                    (domain, has_memory, count),
                )
        self._hold_out(heldout_share)

    def _hold_out(self, share: float) -> None:
        low, high = self._db.execute("SELECT MIN(task_hash), MAX(task_hash) FROM chosen").fetchone()
        bound = share
        if share > 0 and low < high:
            # At least one task on either side.
            bound = min(max(share, math.nextafter(low, 1.0)), high)
        self._db.execute("UPDATE chosen SET heldout = task_hash < ?", (bound,))

    def chosen(self, *, heldout: bool) -> Iterator[str]:
        """The chosen instances as JSON, in a seeded order."""
        query = (
            "SELECT body FROM chosen JOIN candidates USING (file, place) WHERE heldout = ? "
            "ORDER BY chosen.order_hash, file, place"
        )
        with closing(self._db.execute(query, (heldout,))) as rows:
            for (body,) in rows:
                yield body

    def totals(self) -> dict[str, int]:
        """Numbers of candidates, distinct ones, chosen ones, those with memory, and tasks."""
        row = self._db.execute(
            "SELECT (SELECT COUNT(*) FROM candidates), (SELECT COUNT(*) FROM pool), "
            "COUNT(*) - SUM(heldout), SUM(heldout), SUM(has_memory), "
            "COUNT(DISTINCT CASE WHEN heldout THEN NULL ELSE task END), "
            "COUNT(DISTINCT CASE WHEN heldout THEN task END) FROM chosen"
        ).fetchone()
        names = ("candidates", "distinct", "train", "heldout", "memory", "train_tasks",
                 "heldout_tasks")  # fmt: skip
        return {name: value or 0 for name, value in zip(names, row, strict=True)}

    def groups(self, column: str) -> dict[str, tuple[int, int, int]]:
        """Distinct candidates, training and held-out instances by `domain` or `context_tokens`."""
        if column not in ("domain", "context_tokens"):
            raise ValueError(f"no groups by {column}")
        rows = self._db.execute(
            f"SELECT pool.{column}, COUNT(*), COUNT(*) FILTER (WHERE heldout = 0), "
            "COUNT(*) FILTER (WHERE heldout = 1) FROM pool LEFT JOIN chosen USING (file, place) "
            f"GROUP BY pool.{column} ORDER BY pool.{column}"
        )
        return {str(name): (available, train, held) for name, available, train, held in rows}


def _quota(memory: int, plain: int, cap: int, share: float) -> tuple[int, int]:
    """How many instances of a domain with and without memory: at most `cap`, and never more with
    memory than their share, even where that costs size."""
    with_memory = min(memory, round(share * min(cap, memory + plain)))
    without = min(plain, cap - with_memory)
    if share < 1:
        with_memory = min(with_memory, round(without * share / (1 - share)))
    return with_memory, without
