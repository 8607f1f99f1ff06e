"""Adapters for frameworks: each is one file, and needs the extra of its name."""
