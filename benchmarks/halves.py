"""Which half of a labelled set a record is in, always the same: A may be read, B is held out."""

from __future__ import annotations

import argparse
import hashlib


def half_of(identity: object, *, byte: int) -> str:
    """Return A or B by one byte of the id's hash; each set was divided by a byte of its own."""
    return "AB"[hashlib.sha256(str(identity).encode()).digest()[byte] % 2]


def add_half(parser: argparse.ArgumentParser) -> None:
    """Let the command line choose a half."""
    parser.add_argument("--half", choices=("A", "B"), help="Only this half of the records.")
