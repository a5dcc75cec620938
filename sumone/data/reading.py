"""From a file to trajectories: finding the format, reading record by record, reporting."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from sumone.data.formats import (
    anthropic_messages,
    claude_code,
    mini_swe_agent,
    openai_chat,
    openseeker,
    swe_agent,
    swe_smith,
    tau_bench,
)
from sumone.data.formats.fields import RecordError
from sumone.data.report import Drops, Report
from sumone.data.source import Record, read_records
from sumone.errors import ConfigError, DataError
from sumone.types import Trajectory

__all__ = ["FORMATS", "load", "sniff"]


class _RowFormat(Protocol):
    """A format with one trajectory a record."""

    NAME: str

    def matches(self, record: Mapping[str, Any], /) -> bool: ...

    def read_row(self, record: Record, drops: Drops, /) -> Trajectory: ...


# Most specific keys first: the first format that knows a record reads the file.
_ROW_FORMATS: tuple[_RowFormat, ...] = (
    swe_agent,
    tau_bench,
    mini_swe_agent,
    swe_smith,
    openseeker,
    anthropic_messages,
    openai_chat,
)
FORMATS = (claude_code.NAME, *(row_format.NAME for row_format in _ROW_FORMATS))
"""Names of the formats that can be read."""

_SNIFFED_RECORDS = 200
_SHOWN_KEYS = 12


def sniff(path: Path) -> str:
    """Name of the format of a file; raises DataError where no format knows it."""
    return _open(path, Report(), None)[0]


def load(
    path: Path, format: str | None = None, report: Report | None = None
) -> Iterator[Trajectory]:
    """Trajectories of a file, one at a time; `report` is filled while they are read.

    A record that does not fit is skipped and reported. Raises DataError at once where the file
    cannot be opened, is empty or is of no known format, and at the end where nothing in it could
    be read; ConfigError where the format is no known one, or reading parquet needs a package that
    is missing.
    """
    report = Report() if report is None else report
    report.source = str(path)
    report.format, records = _open(path, report, format)
    return _read(path, report, records)


def _open(path: Path, report: Report, format: str | None) -> tuple[str, Iterable[Record]]:
    if format is not None and format not in FORMATS:
        raise ConfigError(f"{format!r} is no known format; choose one of {', '.join(FORMATS)}")
    records = read_records(Path(path), report)
    head: list[Record] = []
    for record in records:
        head.append(record)
        found = format or _format_of(record.value)
        if found:
            return found, chain(head, records)
        if len(head) == _SNIFFED_RECORDS:
            break
    if not head:
        raise DataError(f"{path}: no record that could be read{_first_skip(report)}")
    keys = sorted({key for record in head for key in record.value})
    shown = ", ".join(keys[:_SHOWN_KEYS]) + (", ..." if len(keys) > _SHOWN_KEYS else "")
    raise DataError(
        f"{path}: no supported transcript. Found {len(head)} record(s) with the keys: "
        f"{shown or 'none'}. Supported: {', '.join(FORMATS)}. If it is one of these, name it; "
        "else convert it to OpenAI chat messages."
    )


def _format_of(value: dict[str, Any]) -> str | None:
    if claude_code.matches(value):
        return claude_code.NAME
    return next((fmt.NAME for fmt in _ROW_FORMATS if fmt.matches(value)), None)


def _read(path: Path, report: Report, records: Iterable[Record]) -> Iterator[Trajectory]:
    if report.format == claude_code.NAME:
        trajectories = claude_code.read_session(records, report)
    else:
        row_format = next(fmt for fmt in _ROW_FORMATS if report.format == fmt.NAME)
        trajectories = _read_rows(row_format, report, records)
    for trajectory in trajectories:
        report.give_out(trajectory)
        yield trajectory
    if not report.trajectories:
        raise DataError(f"{path}: nothing could be read as {report.format}{_first_skip(report)}")


def _read_rows(
    row_format: _RowFormat, report: Report, records: Iterable[Record]
) -> Iterator[Trajectory]:
    for record in records:
        report.take_in(record.value)
        drops = Drops()
        try:
            trajectory = row_format.read_row(record, drops)
        except RecordError as error:
            report.skip(record.line, str(error))
            report.drops.drop("unreadable", record.value)
            continue
        report.drops.merge(drops)
        yield trajectory


def _first_skip(report: Report) -> str:
    if not report.skipped:
        return "; it holds no messages"
    first = report.skipped[0]
    return f"; {len(report.skipped)} skipped, the first at line {first.line}: {first.reason}"
