"""Texts normalised, decoded and cut into windows: what a text really says."""

from promptguard.text.places import original_spans
from promptguard.text.read import read_text
from promptguard.text.windows import windows

__all__ = ["original_spans", "read_text", "windows"]
