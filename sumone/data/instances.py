"""`sumone data build`: transcripts in, `train.jsonl`, `heldout.jsonl` and `report.json` out.

Trajectory by trajectory: redact, cut, index on disk; then choose and write. Nothing grows with
the number of files. A killed build goes on where it stopped and gives the same files.
"""

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from glob import glob
from pathlib import Path

from sumone.config import DataConfig
from sumone.data.build_report import BadFile, BuildReport, Group
from sumone.data.candidates import CandidateStore, FileEntry
from sumone.data.cutting import Cutter
from sumone.data.reading import load
from sumone.data.report import Report
from sumone.errors import DataError
from sumone.summarizers.model import RULE_BASED, open_summarizer
from sumone.tokens import ByteEstimate, Tokens, load_tokens

__all__ = ["build", "build_async"]

_VERSION = 1
"""Goes up when the same settings would give other instances."""
_SUFFIXES = (".json", ".jsonl", ".traj", ".parquet")
_BAD_FILES_LISTED = 100


def build(
    config: DataConfig,
    files: Sequence[str | Path] = (),
    *,
    on_file: Callable[[FileEntry], None] | None = None,
) -> BuildReport:
    """`build_async`, for callers without an event loop."""
    return asyncio.run(build_async(config, files, on_file=on_file))


async def build_async(
    config: DataConfig,
    files: Sequence[str | Path] = (),
    *,
    on_file: Callable[[FileEntry], None] | None = None,
) -> BuildReport:
    """Make instances of the transcripts in `config.files` and `files` (paths, folders, patterns).

    `on_file` hears of each file when it is done. Raises DataError when nothing could be read or
    nothing was long enough, ConfigError for a tokenizer or summarizer that is not there,
    ModelError when the memory summarizer failed for good (run again to go on).
    """
    output = Path(config.output_dir)
    tokens: Tokens = load_tokens(config.tokenizer) if config.tokenizer else ByteEstimate()
    opened = open_summarizer(config.memory_summarizer or RULE_BASED, tokens=tokens)
    digest = _digest(config, tokens)
    try:
        with CandidateStore(
            output / "work" / "index.sqlite", digest=digest, seed=config.seed
        ) as store:
            paths = list(_expand((*config.files, *map(str, files)), output))
            store.keep_only(paths)
            for path in paths:
                cutter = Cutter(config, tokens, opened.summarizer)
                entry = await _add_file(path, store, cutter)
                if on_file:
                    on_file(entry)
            store.choose(
                memory_share=config.memory_share,
                heldout_share=config.heldout_share,
                max_per_domain=config.max_per_domain,
            )
            for name, heldout in (("train", False), ("heldout", True)):
                _write(output / f"{name}.jsonl", store.chosen(heldout=heldout))
            report = _report(config, tokens, store)
    finally:
        await opened.aclose()
    _write(output / "report.json", [report.model_dump_json(indent=1)])
    _require_instances(report, config)
    return report


async def _add_file(path: str, store: CandidateStore, cutter: Cutter) -> FileEntry:
    """Read one file into the store; what is wrong with it becomes its entry's `error`."""
    try:
        file_hash = _file_hash(path)
    except OSError as error:
        entry = FileEntry(path, "", f"{type(error).__name__}: {error.strerror or error}")
        store.start(path)
        store.finish(entry)
        return entry
    if store.finished(path, file_hash):
        return FileEntry(path, file_hash)
    store.start(path)
    report = Report()
    place = 0
    try:
        for trajectory in load(Path(path), None, report):
            for candidate in await cutter.cut(trajectory):
                store.add(path, place, candidate)
                place += 1
            await asyncio.sleep(0)
        entry = FileEntry(
            path, file_hash, "", report.trajectories, len(report.skipped), cutter.counts,
            cutter.redactions,
        )  # fmt: skip
    except (DataError, OSError, UnicodeError, RecursionError) as error:
        entry = FileEntry(path, file_hash, _reason(path, error))
    store.finish(entry)
    return entry


def _reason(path: str, error: Exception) -> str:
    text = str(error).removeprefix(f"{path}: ")
    return text if isinstance(error, DataError) else f"{type(error).__name__}: {text}"


def _expand(items: Iterable[str], output: Path) -> Iterator[str]:
    """Files in order, each once; what a build wrote is never its input."""
    own = os.path.realpath(output) + os.sep
    seen: set[str] = set()
    for path in sorted(path for item in items for path in _matches(item)):
        resolved = os.path.realpath(path)
        if resolved not in seen and not resolved.startswith(own):
            seen.add(resolved)
            yield path


def _matches(item: str) -> Iterator[str]:
    if Path(item).is_dir():
        for path in Path(item).rglob("*"):
            hidden = any(part.startswith(".") for part in path.relative_to(item).parts)
            if path.suffix in _SUFFIXES and not hidden and path.is_file():
                yield str(path)
    elif Path(item).exists():
        yield item
    else:
        matches = glob(item, recursive=True)  # noqa: PTH207 - absolute patterns, which Path refuses
        for match in matches:
            yield from _matches(match)
        if not matches:
            yield item  # reported as a file that is not there


def _digest(config: DataConfig, tokens: Tokens) -> str:
    chosen = config.model_dump_json(exclude={"files", "output_dir", "heldout_share"})
    sample = tokens.count_batch([chosen, "Grüße 你好 \U0001f600"])
    return hashlib.sha256(f"{_VERSION}\0{chosen}\0{tokens.name}\0{sample}".encode()).hexdigest()


def _file_hash(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, lines: Iterable[str]) -> None:
    """Replace a file whole, line by line."""
    temporary = path.with_name(f".{path.name}.partial")
    with temporary.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _report(config: DataConfig, tokens: Tokens, store: CandidateStore) -> BuildReport:
    bad: list[BadFile] = []
    sums: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    redactions: Counter[str] = Counter()
    for entry in store.entries():
        sums["bad" if entry.error else "read"] += 1
        if entry.error and len(bad) < _BAD_FILES_LISTED:
            bad.append(BadFile(path=entry.path, reason=entry.error))
        sums["trajectories"] += entry.trajectories
        sums["skipped"] += entry.skipped_records
        counts.update(entry.counts)
        redactions.update(entry.redactions)
    totals = store.totals()
    instances = totals["train"] + totals["heldout"]
    groups = {
        column: {
            name: Group(available=available, train=train, heldout=heldout)
            for name, (available, train, heldout) in store.groups(column).items()
        }
        for column in ("domain", "context_tokens")
    }
    return BuildReport(
        output_dir=config.output_dir,
        tokens=tokens.name,
        files_read=sums["read"],
        files_bad=sums["bad"],
        bad=tuple(bad),
        skipped_records=sums["skipped"],
        trajectories=sums["trajectories"],
        no_instance=dict(sorted(counts.items())),
        duplicates=totals["candidates"] - totals["distinct"],
        train=totals["train"],
        heldout=totals["heldout"],
        train_tasks=totals["train_tasks"],
        heldout_tasks=totals["heldout_tasks"],
        memory_share=round(totals["memory"] / instances, 4) if instances else 0.0,
        domains=groups["domain"],
        context_tokens=groups["context_tokens"],
        redactions=dict(sorted(redactions.items())),
    )


def _require_instances(report: BuildReport, config: DataConfig) -> None:
    if not report.trajectories:
        first = f"; the first: {report.bad[0].path}: {report.bad[0].reason}" if report.bad else ""
        raise DataError(
            f"nothing could be read: {report.files_bad} file(s) were skipped{first}. Name "
            "transcript files, folders or patterns, as `files` in the configuration or behind it"
        )
    if not report.train + report.heldout:
        raise DataError(
            f"{report.trajectories} trajectories gave no instance ({report.no_instance}): lower "
            f"context_tokens (now {list(config.context_tokens)}) or min_history_tokens "
            f"(now {config.min_history_tokens})"
        )
