"""Stored conversations are read from many kinds of files, and nothing is dropped silently."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from promptguard.conversation import Role
from promptguard.errors import ConfigError, InputError
from promptguard.records import Fault, FieldMap, Record, input_files, read_records

REPLY = {"role": "assistant", "content": "hi"}
HELLO = {"id": "a", "messages": [{"role": "user", "content": "hello"}]}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def only(path: Path, fields: FieldMap | None = None) -> Record:
    (found,) = read_records([path], fields)
    assert isinstance(found, Record), found
    return found


def test_jsonl_plain_and_gzipped_read_alike(tmp_path: Path) -> None:
    """A gzipped file is recognised by its content."""
    line = json.dumps(HELLO | {"label": "Benign", "lang": "en", "attack_turn": 2})
    plain = write(tmp_path / "a.jsonl", f"{line}\n\n{line}\n")
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    first, second = list(read_records([plain])), list(read_records([packed]))
    assert [r.number for r in first] == [1, 3]
    assert [(r.id, r.number) for r in first] == [(r.id, r.number) for r in second]
    assert isinstance(first[0], Record)
    assert (first[0].label, first[0].lang, first[0].attack_turn) == ("benign", "en", "2")


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "3", '{"id": "a"}', '{"id": "a", "messages": []}', '{"messages": [{"role": "x"}]}',
     '{"messages": [{"role": "user", "content": "hi", "timestamp": NaN}]}',
     '{"messages": "not json"}', "[" * 100_000],
)  # fmt: skip
def test_a_bad_line_is_a_fault_with_its_number(tmp_path: Path, line: str) -> None:
    """Reading goes on after a bad line, and the fault says where it was."""
    path = write(tmp_path / "a.jsonl", f"{json.dumps(HELLO)}\n{line}\n{json.dumps(HELLO)}\n")
    before, fault, after = read_records([path])
    assert isinstance(before, Record)
    assert isinstance(after, Record)
    assert isinstance(fault, Fault)
    assert (fault.file, fault.number) == ("a.jsonl", 2)


def test_a_fault_keeps_the_id_but_never_the_text(tmp_path: Path) -> None:
    """User text does not leak into reasons."""
    row = {"id": 7, "messages": [{"role": "SECRETROLE", "content": "SECRETTEXT"}]}
    (fault,) = read_records([write(tmp_path / "a.jsonl", json.dumps(row))])
    assert isinstance(fault, Fault)
    assert fault.id == 7
    assert "SECRET" not in fault.reason


def test_invalid_utf8_is_a_fault_of_one_line(tmp_path: Path) -> None:
    """Broken bytes cost one line."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\xfe\n" + json.dumps(HELLO).encode() + b"\n")
    fault, record = read_records([path])
    assert isinstance(fault, Fault)
    assert isinstance(record, Record)


def test_a_broken_gzip_file_ends_in_a_fault(tmp_path: Path) -> None:
    """What was cut off is reported, not forgotten."""
    path = tmp_path / "a.jsonl.gz"
    lines = "".join(json.dumps(HELLO | {"id": n, "pad": str(n) * 50}) + "\n" for n in range(2000))
    path.write_bytes(gzip.compress(lines.encode())[:-2000])
    *records, last = read_records([path])
    assert records
    assert isinstance(last, Fault)


def test_json_arrays_containers_and_single_objects(tmp_path: Path) -> None:
    """A JSON file may hold a list, an object with a list, or one record."""
    for number, body in enumerate(([HELLO, HELLO], {"data": [HELLO, HELLO]}, HELLO)):
        found = list(read_records([write(tmp_path / f"{number}.json", json.dumps(body))]))
        assert len(found) == (1 if number == 2 else 2)
        assert all(isinstance(item, Record) for item in found)


@pytest.mark.parametrize("name", ["messages", "text"])
def test_a_single_conversation_may_have_a_field_called_data(tmp_path: Path, name: str) -> None:
    """It is the record, and not what its field holds."""
    body = {"id": "a", name: HELLO["messages"] if name == "messages" else "hello", "data": []}
    assert only(write(tmp_path / "a.json", json.dumps(body))).id == "a"


def test_a_folder_in_a_folder_is_no_file_of_it(tmp_path: Path) -> None:
    """Whatever its name ends with; the files beside it are read."""
    file = write(tmp_path / "a.jsonl", json.dumps(HELLO))
    (tmp_path / "b.json").mkdir()
    assert input_files([tmp_path]) == (str(file),)


def test_requests_within_requests_end_no_reading(tmp_path: Path) -> None:
    """However deep they are: what JSON can say is read, what it cannot is a fault."""
    deepest = sys.getrecursionlimit()
    for depth in range(deepest - 150, deepest):
        line = '{"request":' * depth + '{"text": "hello"}' + "}" * depth
        (found,) = read_records([write(tmp_path / "a.jsonl", line)])
        assert isinstance(found, Fault) or found.messages[0].content == "hello"


def test_json_lines_in_a_json_file(tmp_path: Path) -> None:
    """A .json file with one object per line is read line by line."""
    path = write(tmp_path / "a.json", f"{json.dumps(HELLO)}\n{json.dumps(HELLO)}\n")
    assert len(list(read_records([path]))) == 2


def test_csv_with_a_field_map(tmp_path: Path) -> None:
    """Columns are named on the command line, labels translated."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["", "n", "question", "bad"])
    writer.writerow(["0", "q1", "how,\nwhy?", "1"])
    path = write(tmp_path / "a.csv", out.getvalue())
    fields = FieldMap.parse(["id=n", "text=question", "label=bad"], ["1=attack", "0=benign"])
    record = only(path, fields)
    assert (record.id, record.label) == ("q1", "attack")
    assert record.messages[0].content == "how,\nwhy?"


def test_csv_with_messages_as_json(tmp_path: Path) -> None:
    """A table may keep the list of messages as JSON text."""
    cell = json.dumps(HELLO["messages"]).replace('"', '""')
    assert only(write(tmp_path / "a.csv", f'id,messages\na,"{cell}"\n')).messages


def test_a_row_with_too_many_cells_is_a_fault(tmp_path: Path) -> None:
    """A shifted row is not guessed at."""
    (fault,) = read_records([write(tmp_path / "a.csv", "id,text\na,b,c\n")])
    assert isinstance(fault, Fault)


def test_parquet(tmp_path: Path) -> None:
    """Parquet rows with lists of structs are read."""
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.Table.from_pylist([HELLO, HELLO | {"id": "b"}]), path)
    assert [record.id for record in read_records([path])] == ["a", "b"]
    path.write_bytes(b"nonsense")
    (fault,) = read_records([path])
    assert isinstance(fault, Fault)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1000, 1], type=pa.timestamp("ns")),
        pa.array([1, 9 * 10**18], type=pa.timestamp("us")),
        pa.array([b"fine", b"\xff"]).view(pa.string()),
    ],
    ids=["nanoseconds", "far future", "not UTF-8"],
)
def test_a_parquet_value_that_python_cannot_hold_costs_its_row(
    tmp_path: Path, column: pa.Array
) -> None:
    """Every other row of the file is read."""
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": ["a", "b"], "extra": column}), path)
    first, second = read_records([path])
    assert isinstance(first, Record)
    assert isinstance(second, Fault)
    assert (second.number, "cannot be read" in second.reason) == (2, True)


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing package is a configuration error that says what to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "a.parquet"
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"ayniguard\[parquet\]"):
        list(read_records([path]))


def test_sharegpt(tmp_path: Path) -> None:
    """ShareGPT's speakers become roles."""
    said = [("system", "s"), ("human", "u"), ("gpt", "a"), ("observation", "t")]
    row = {"id": "x", "conversations": [{"from": who, "value": what} for who, what in said]}
    record = only(write(tmp_path / "a.jsonl", json.dumps(row)))
    roles = [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL]
    assert [m.role for m in record.messages] == roles


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"id": "r", "request": {"messages": HELLO["messages"]},
             "response": {"choices": [{"message": REPLY}]}},
            ["user", "assistant"],
        ),
        (
            {"custom_id": "r", "body": {"messages": HELLO["messages"]},
             "response": {"body": {"choices": [{"message": REPLY}]}}},
            ["user", "assistant"],
        ),
        ({"custom_id": "r", "input": "hello"}, ["user"]),
        (
            {"id": "r", "input": [{"role": "user", "content": [{"type": "input_text"}]},
                                  {"type": "function_call_output", "output": "o"}]},
            ["user", "tool"],
        ),
    ],
)  # fmt: skip
def test_openai_logs(tmp_path: Path, row: dict[str, Any], expected: list[str]) -> None:
    """Requests, batches and the Responses API are understood, with the reply where it is kept."""
    record = only(write(tmp_path / "a.jsonl", json.dumps(row)))
    assert record.id == "r"
    assert [m.role.value for m in record.messages] == expected


def test_a_record_without_an_id_is_named_by_its_place(tmp_path: Path) -> None:
    """Every record can be pointed at."""
    row = {"messages": HELLO["messages"]}
    assert only(write(tmp_path / "a.jsonl", json.dumps(row))).id == "a.jsonl:1"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash reads what is piped in, gzipped or not, and leaves standard input open."""
    for raw in (json.dumps(HELLO).encode(), gzip.compress(json.dumps(HELLO).encode())):
        stdin = io.TextIOWrapper(io.BytesIO(raw))
        monkeypatch.setattr(sys, "stdin", stdin)
        (record,) = read_records(["-"])
        assert isinstance(record, Record)
        assert not stdin.closed


def test_a_line_that_is_piped_in_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is followed is judged as it grows, and not when eight kilobytes have come."""
    reader, writer = os.pipe()
    with (
        os.fdopen(reader) as stdin,
        ThreadPoolExecutor(1) as pool,
        os.fdopen(writer, "wb", buffering=0) as pipe,
    ):
        monkeypatch.setattr(sys, "stdin", stdin)
        pipe.write(json.dumps(HELLO).encode() + b"\n")
        record = pool.submit(next, read_records(["-"])).result(timeout=5)
    assert isinstance(record, Record)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    """A folder stands for the files in it; a missing one is an error before any work."""
    for name in ("b.jsonl", "a.csv", "notes.txt"):
        write(tmp_path / name, "")
    names = [Path(path).name for path in input_files([tmp_path])]
    assert names == ["a.csv", "b.jsonl"]
    with pytest.raises(InputError, match="does not exist"):
        input_files([tmp_path / "none.jsonl"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no"):
        input_files([tmp_path / "empty"])


@pytest.mark.parametrize("pair", ["label", "=x", "label=", "colour=x"])
def test_a_bad_field_map_is_a_configuration_error(pair: str) -> None:
    """Unknown names and half pairs are refused."""
    with pytest.raises(ConfigError):
        FieldMap.parse([pair])


@given(st.binary(max_size=300))
def test_any_bytes_give_records_or_faults(raw: bytes) -> None:
    """No input makes the reader fail."""
    from promptguard.records.files import _line_rows, _read

    for number, row in _line_rows(io.BytesIO(raw)):
        assert isinstance(_read(row, "f", number, FieldMap()), (Record, Fault))
