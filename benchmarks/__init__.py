"""Measurements of speed and quality, each a command that prints and writes what it finds."""
