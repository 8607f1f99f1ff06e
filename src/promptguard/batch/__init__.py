"""Judging many stored conversations."""
