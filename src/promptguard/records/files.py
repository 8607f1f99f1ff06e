"""Files of stored conversations: JSON Lines, JSON, CSV and Parquet, gzipped or not."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from promptguard.conversation import printable
from promptguard.errors import ConfigError, InputError
from promptguard.records.fields import TEXT_NAMES, FieldMap
from promptguard.records.record import Fault, Record, id_of, record_from

STDIN = "-"
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
_CONTAINERS = ("data", "records", "rows", "items")
_CONVERSATIONS = ("messages", "conversations", *TEXT_NAMES)
# The limit of `csv` is 128 KiB, less than a conversation; more than this fits no C long on Windows.
_MAX_CELL = 2**31 - 1
_BROKEN = (OSError, EOFError, zlib.error)

Row = tuple[int, object]
"""The number of a line and what it holds: a value, or an InputError where it cannot be read."""


def input_files(given: Iterable[str | Path]) -> tuple[str, ...]:
    """Return the files named, with the readable ones inside a folder in order of their names.

    A folder's files that a scan wrote (they have a `NAME.run` beside them) are left out. Raises
    InputError for what does not exist.
    """
    found: list[str] = []
    for item in map(str, given):
        path = Path(item)
        if item != STDIN and path.is_dir():
            inside = sorted(p for p in path.iterdir() if _is_input(p))
            if not inside:
                raise InputError(f"{item} holds no JSONL, JSON, CSV or Parquet file.")
            found += map(str, inside)
        elif item == STDIN or path.exists():
            found.append(item)
        else:
            raise InputError(f"{item} does not exist.")
    return tuple(found)


def _is_input(path: Path) -> bool:
    if _suffix(path.name) not in _SUFFIXES or path.is_dir():
        return False
    return not path.with_name(path.name + ".run").exists()


def read_records(
    given: Iterable[str | Path], fields: FieldMap | None = None
) -> Iterator[Record | Fault]:
    """Yield every record of the files in order; what is not a record is a Fault in its place.

    `-` is standard input. Blank lines are no records. A file that breaks off yields a Fault
    for the rest of it.
    """
    chosen = fields or FieldMap()
    for path in input_files(given):
        # A file may be called anything, and its name is written into reports.
        name = "stdin" if path == STDIN else printable(Path(path).name)
        for number, row in _rows(path):
            yield _read(row, name, number, chosen)


def _read(row: object, file: str, number: int, fields: FieldMap) -> Record | Fault:
    try:
        if isinstance(row, InputError):
            raise row
        return record_from(row, file=file, number=number, fields=fields)
    except InputError as error:
        return Fault(file=file, number=number, reason=str(error), id=id_of(row, fields))


def _rows(path: str) -> Iterator[Row]:
    if _suffix(path) == ".parquet":
        yield from _parquet_rows(path)
        return
    with _opened(path) as raw:
        # By content, because standard input has no name to tell it by.
        is_packed = raw.peek(2)[:2] == b"\x1f\x8b"
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if is_packed else raw)
        yield from _READERS.get(_suffix(path), _line_rows)(stream)


@contextmanager
def _opened(path: str) -> Iterator[io.BufferedReader[Any]]:
    if path == STDIN:
        # Of the pipe itself: over another buffer, reading would wait until that one is full.
        raw = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        reader = io.BufferedReader(cast("io.RawIOBase", raw))
        try:
            yield reader
        finally:
            # Closing the reader would close standard input itself.
            reader.detach()
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115  the next line closes it
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from None
    with file:
        yield file


def _suffix(name: str) -> str:
    return Path(name.lower().removesuffix(".gz")).suffix


def _line_rows(stream: IO[bytes]) -> Iterator[Row]:
    number = 0
    try:
        for number, line in enumerate(stream, start=1):
            # Some editors begin a file with a byte order mark, which JSON does not allow.
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield number, _json_value(text)
    except _BROKEN as error:
        yield number + 1, _cut_short(error)


def _json_value(text: bytes) -> object:
    try:
        return json.loads(text.decode("utf-8"))
    except UnicodeDecodeError:
        return InputError("The line is not valid UTF-8.")
    except (ValueError, RecursionError):
        return InputError("The line is not valid JSON.")


def _json_rows(stream: IO[bytes]) -> Iterator[Row]:
    try:
        whole = stream.read()
    except _BROKEN as error:
        yield 1, _cut_short(error)
        return
    value = _json_value(whole.removeprefix(b"\xef\xbb\xbf"))
    if isinstance(value, InputError):
        # Many a file called .json holds one object per line.
        yield from _line_rows(io.BytesIO(whole))
        return
    # A single conversation may have such a field too.
    if isinstance(value, Mapping) and value.keys().isdisjoint(_CONVERSATIONS):
        value = next((value[k] for k in _CONTAINERS if isinstance(value.get(k), list)), value)
    yield from enumerate(value if isinstance(value, list) else [value], start=1)


def _table_rows(stream: IO[bytes], delimiter: str = ",") -> Iterator[Row]:
    csv.field_size_limit(_MAX_CELL)
    number = 1
    try:
        with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, delimiter=delimiter)
            for row in reader:
                number = reader.line_num
                # `DictReader` puts surplus cells under the key None.
                yield number, InputError("The row has too many cells.") if None in row else row
    except (UnicodeDecodeError, csv.Error):
        yield number + 1, InputError("The table cannot be read from here on.")
    except _BROKEN as error:
        yield number + 1, _cut_short(error)


_READERS: Mapping[str, Callable[[IO[bytes]], Iterator[Row]]] = {
    ".json": _json_rows,
    ".csv": _table_rows,
    ".tsv": partial(_table_rows, delimiter="\t"),
}


def _parquet_rows(path: str) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow; install it with `pip install ayniguard[parquet]`."
        ) from None
    number = 0
    try:
        with parquet.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=256):
                for row in _batch_rows(batch):
                    number += 1
                    yield number, row
    except (ArrowException, OSError) as error:
        yield number + 1, _cut_short(error)


def _batch_rows(batch: Any) -> Iterator[object]:
    try:
        yield from batch.to_pylist()
    except (ValueError, OverflowError):
        # Text that is not UTF-8, a moment no clock has: the rows beside it can be read.
        for at in range(batch.num_rows):
            try:
                yield from batch.slice(at, 1).to_pylist()
            except (ValueError, OverflowError):
                yield InputError("The row holds a value that cannot be read.")


def _cut_short(error: Exception) -> InputError:
    return InputError(f"The file is broken from here on ({type(error).__name__}).")
