"""Stored conversations, read from log files in several formats."""

from promptguard.records.fields import FieldMap
from promptguard.records.files import input_files, read_records
from promptguard.records.record import Fault, Record

__all__ = ["Fault", "FieldMap", "Record", "input_files", "read_records"]
