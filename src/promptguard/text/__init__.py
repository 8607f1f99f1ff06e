"""What the text really says."""

from promptguard.text.read import read_text

__all__ = ["read_text"]
