"""Checks and listings that make targets run; no part of the package."""
