"""Stored conversations, read from the files that others keep them in."""

from promptguard.records.fields import FieldMap
from promptguard.records.files import input_files, read_records
from promptguard.records.record import Fault, Record

__all__ = ["Fault", "FieldMap", "Record", "input_files", "read_records"]
