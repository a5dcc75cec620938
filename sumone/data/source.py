"""Files as records: JSON lines, JSON and parquet, read as a stream.

A record is a JSON object: a line, an item of a list, a parquet row, or a whole JSON file. A bare
list of chat messages, in a JSON file or one message a line, becomes the one record
`{"messages": [...]}`. Columns that hold messages as a JSON string are decoded, so their
characters count once, decoded. What is not a JSON object is skipped and reported, and never
stops the file.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from sumone.data.report import Report
from sumone.errors import ConfigError, DataError

__all__ = ["Record", "read_records"]

_LINE_SUFFIXES = (".jsonl", ".ndjson")
_MESSAGE_COLUMNS = ("messages", "trajectory")
_ROWS_PER_BATCH = 32


class Record(NamedTuple):
    """One JSON object of a file."""

    line: int
    """Line of the file, from 1; item or row otherwise."""
    value: dict[str, Any]
    """The object."""
    path: Path
    """The file."""
    alone: bool = False
    """The object is the whole file."""

    @property
    def source(self) -> str:
        """The file and, where it holds several records, the position from 0."""
        return str(self.path) if self.alone else f"{self.path}#{self.line - 1}"


def read_records(path: Path, report: Report) -> Iterator[Record]:
    """Records of a file in order, one at a time (a JSON file is read whole).

    Raises DataError where the file cannot be opened, is empty, or is no JSON at all, and
    ConfigError where reading parquet needs a package that is missing.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if not head:
        raise DataError(f"{path}: the file is empty; nothing to read")
    if head == b"PAR1":
        records = _parquet_rows(path)
    elif path.suffix.lower() in _LINE_SUFFIXES:
        records = _joined(_json_lines(path, report))
    else:
        records = _json_file(path, report)
    for record in records:
        for column in _MESSAGE_COLUMNS:
            if isinstance(text := record.value.get(column), str):
                record.value[column] = _decoded(text)
        yield record


def _decoded(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, list) else text


def _is_message(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and "messages" not in value
        and ("content" in value or "tool_calls" in value)
    )


def _json_lines(path: Path, report: Report) -> Iterator[Record]:
    with path.open("rb") as file:
        # Iterating over bytes splits on "\n" only; str.splitlines would cut inside strings.
        for number, raw in enumerate(file, start=1):
            content = raw.removeprefix(BOM_UTF8).strip(b" \t\r\n\x00")
            if not content:
                if b"\x00" in raw:
                    report.skip(number, "only NUL bytes")
                continue
            try:
                value = json.loads(content.decode())
            except UnicodeDecodeError:
                report.skip(number, "not UTF-8")
                continue
            except (ValueError, RecursionError) as error:
                report.skip(number, f"not JSON: {error}")
                continue
            if isinstance(value, list) and value and all(map(_is_message, value)):
                value = {"messages": value}
            if isinstance(value, dict):
                yield Record(number, value, path)
            else:
                report.skip(number, f"a JSON {_kind(value)} where an object is needed")


def _joined(records: Iterator[Record]) -> Iterator[Record]:
    """One message a line makes the file one record; other records pass."""
    first = next(records, None)
    if first is None:
        return
    if _is_message(first.value):
        messages = [first.value, *(record.value for record in records)]
        yield Record(1, {"messages": messages}, first.path, alone=True)
    else:
        yield from chain([first], records)


def _json_file(path: Path, report: Report) -> Iterator[Record]:
    try:
        value = json.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text (byte {error.start}); transcripts are JSON, JSON lines or "
            "parquet"
        ) from error
    except (ValueError, RecursionError) as error:
        lines = _joined(_json_lines(path, report))
        if (first := next(lines, None)) is None:
            report.skipped.clear()
            raise DataError(
                f"{path}: neither JSON nor JSON lines ({error}); is the file cut off?"
            ) from error
        yield from chain([first], lines)
        return
    if isinstance(value, dict):
        yield Record(1, value, path, alone=True)
    elif isinstance(value, list) and any(map(_is_message, value)):
        yield Record(1, {"messages": value}, path, alone=True)
    elif isinstance(value, list):
        for number, item in enumerate(value, start=1):
            if isinstance(item, dict):
                yield Record(number, item, path)
            else:
                report.skip(number, f"a JSON {_kind(item)} where an object is needed")
    else:
        report.skip(1, f"a JSON {_kind(value)} where an object is needed")


def _parquet_rows(path: Path) -> Iterator[Record]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ConfigError(
            f"{path}: reading parquet needs pyarrow; install an extra that has it: "
            "pip install 'sumone[train]' or 'sumone[eval]'"
        ) from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(_ROWS_PER_BATCH, row_groups=[group]):
                    for row in batch.to_pylist():
                        number += 1
                        yield Record(number, row, path)
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: damaged parquet file at row {number + 1}: {error}") from error


def _kind(value: object) -> str:
    names = {list: "list", str: "string", int: "number", float: "number", bool: "boolean"}
    return names.get(type(value), "null")
