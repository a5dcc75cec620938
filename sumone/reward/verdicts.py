"""Past verdicts in SQLite, keyed by content: the same text is never judged twice."""

import hashlib
import logging
import sqlite3
import threading
from pathlib import Path

from sumone.errors import ConfigError
from sumone.reward.score import Score

__all__ = ["VerdictCache", "verdict_key"]

_log = logging.getLogger(__name__)


def verdict_key(judge: str, rubric: str, truth: str, prediction: str) -> str:
    """Hash of all that a verdict depends on; parts are told apart by their lengths."""
    digest = hashlib.sha256()
    for part in (judge, rubric, truth, prediction):
        data = part.encode("utf-8", "replace")
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


class VerdictCache:
    """One table of valid verdicts; several processes may share the file."""

    def __init__(self, path: str | Path | None) -> None:
        """Open or make the file (None: in memory); ConfigError if it is no such file."""
        target = ":memory:" if path is None else str(path)
        self._lock = threading.Lock()
        self.num_faults = 0
        """Reads and writes that failed; each costs at most one more judge call."""
        try:
            if path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(target, timeout=5.0, check_same_thread=False)
            self._database.execute("pragma journal_mode=wal")
            self._database.execute("pragma synchronous=normal")
            self._database.execute(
                "create table if not exists verdicts"
                " (key text primary key, precision real not null, recall real not null)"
            )
            self._database.commit()
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(
                f"verdict cache {target}: cannot be used ({error}): "
                "remove the file or set judge.cache to another path"
            ) from error

    def get(self, key: str) -> Score | None:
        """The verdict of this key, or None."""
        try:
            with self._lock:
                row = self._database.execute(
                    "select precision, recall from verdicts where key = ?", (key,)
                ).fetchone()
        except sqlite3.Error as error:
            self._fault(error)
            return None
        return Score(*row) if row else None

    def put(self, key: str, score: Score) -> None:
        """Keep a verdict; the first of a key stays."""
        try:
            with self._lock:
                self._database.execute(
                    "insert or ignore into verdicts values (?, ?, ?)", (key, *score)
                )
                self._database.commit()
        except sqlite3.Error as error:
            self._fault(error)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _fault(self, error: sqlite3.Error) -> None:
        self.num_faults += 1
        if self.num_faults == 1:
            _log.warning("verdict cache: %s; judging goes on without it", error)
